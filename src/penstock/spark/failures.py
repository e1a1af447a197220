"""Lists the errors of a pipeline that its user can do something about; their messages say what."""

from typing import Final

from penstock.client.settings import SettingsError
from penstock.spark.java import JavaNotFoundError
from penstock.spark.lake.files import DamagedFileError
from penstock.spark.lake.lake import LakeError
from penstock.spark.lake.replaying import ReplayError
from penstock.spark.options import OptionsError
from penstock.spark.planning import PlanError
from penstock.spark.positions import DataLossError
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
