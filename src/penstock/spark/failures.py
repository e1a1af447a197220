"""What can go wrong in a pipeline for a reason that its user can do something about: the message says what."""

from typing import Final

from penstock.client.settings import SettingsError
from penstock.spark.java import JavaNotFoundError
from penstock.spark.lake import LakeError
from penstock.spark.lake_files import DamagedFileError
from penstock.spark.options import OptionsError
from penstock.spark.planning import PlanError
from penstock.spark.positions import DataLossError
from penstock.spark.replaying import ReplayError
from penstock.spark.tasks import TaskFailedError

FAILURES: Final = (
    DamagedFileError,
    DataLossError,
    JavaNotFoundError,
    LakeError,
    OptionsError,
    PlanError,
    ReplayError,
    SettingsError,
    TaskFailedError,
)
