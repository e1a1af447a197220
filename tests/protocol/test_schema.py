"""Messages as classes: rows, defaults, equality, and what they show of themselves."""

from collections.abc import Sequence

import pytest

from penstock.protocol.schema import ZERO_UUID, Message, Versions, row
from tests.protocol.messages import all_messages


class Point(Message):
    x: int = row("int32", "0+", default=0)
    y: int = row("int32", "2+", default=-1, ignorable=True)


class Shape(Message, key=7, versions="0-3", flexible="2+"):
    name: str | None = row("string", "0+", default=None, nullable="1+")
    corners: Sequence[Point] = row([Point], "0+", default=())
    center: Point = row(Point, "1+", factory=Point)
    id: bytes = row("uuid", "3+", default=ZERO_UUID, tag=0, tagged="3+")


class Empty(Message):
    pass


@pytest.mark.parametrize(
    ("text", "expected"),
    [("3-13", (3, 13)), ("9+", (9, 32767)), ("2", (2, 2)), ("0", (0, 0)), ("none", (1, 0)), ("", (1, 0))],
)
def test_versions_are_written_as_kafka_writes_them(text: str, expected: tuple[int, int]) -> None:
    assert Versions.parse(text) == expected


def test_a_range_of_versions_includes_both_ends() -> None:
    assert [version for version in range(6) if version in Versions.parse("2-4")] == [2, 3, 4]
    assert [version for version in range(6) if version in Versions.parse("4+")] == [4, 5]
    assert [version for version in range(-1, 6) if version in Versions.parse("none")] == []
    text: object = "2"
    assert text not in Versions.parse("2")


def test_a_class_keeps_what_it_was_declared_with() -> None:
    schema = Shape.schema
    assert (schema.key, schema.versions, schema.flexible) == (7, (0, 3), (2, 32767))
    assert list(schema.rows) == ["name", "corners", "center", "id"]
    assert Point.schema.key is None


def test_a_row_knows_its_element() -> None:
    rows = Shape.schema.rows
    assert (rows["corners"].element, rows["corners"].is_array) == (Point, True)
    assert (rows["center"].element, rows["center"].is_array) == (Point, False)
    assert (rows["name"].element, rows["name"].is_array) == ("string", False)
    assert (rows["id"].tag, rows["id"].tagged) == (0, (3, 32767))


def test_fields_that_are_not_given_have_their_defaults() -> None:
    shape = Shape()
    assert (shape.name, shape.corners, shape.center, shape.id) == (None, (), Point(x=0, y=-1), ZERO_UUID)


def test_a_default_struct_is_made_anew_for_every_message() -> None:
    one, other = Shape(), Shape()
    one.center.x = 9
    assert other.center.x == 0


def test_an_explicit_none_is_not_the_default() -> None:
    assert Shape(center=None).center is None  # type: ignore[arg-type]


def test_an_unknown_field_is_a_type_error_the_first_time_and_later() -> None:
    class Fresh(Message):
        x: int = row("int32", "0+", default=0)

    for _ in range(2):
        with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
            Fresh(z=1)  # type: ignore[call-arg]
    assert Fresh(x=3).x == 3


def test_fields_are_given_by_name_alone() -> None:
    with pytest.raises(TypeError, match="positional"):
        Point(1)  # type: ignore[call-arg]


def test_a_message_has_no_room_for_other_attributes() -> None:
    with pytest.raises(AttributeError):
        Point().z = 1  # type: ignore[attr-defined]
    assert not hasattr(Point(), "__dict__")


def test_a_message_without_fields_can_be_made() -> None:
    assert Empty() == Empty()
    assert repr(Empty()) == "Empty()"


def test_messages_are_equal_by_their_values() -> None:
    assert Shape(name="a", corners=[Point(x=1)]) == Shape(name="a", corners=[Point(x=1)])
    assert Shape(name="a", corners=[Point(x=1)]) != Shape(name="a", corners=[Point(x=2)])
    assert Shape(corners=[Point()]) != Shape(corners=[Point(), Point()])
    assert Shape(name="a") != Shape(name=None)
    assert Point() != Empty()
    assert Point() != (0, -1)


def test_an_array_is_the_same_as_a_list_or_a_tuple() -> None:
    assert Shape(corners=[Point(x=1), Point()]) == Shape(corners=(Point(x=1), Point()))
    assert Shape(corners=[]) == Shape(corners=())


def test_messages_cannot_be_keys_because_they_change() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(Point())


def test_a_message_shows_what_differs_from_its_defaults() -> None:
    assert repr(Shape()) == "Shape()"
    assert repr(Shape(name="a", corners=[Point(x=1)])) == "Shape(name='a', corners=[Point(x=1)])"
    assert repr(Shape(corners=[], center=Point())) == "Shape()"


@pytest.mark.parametrize("cls", all_messages(), ids=lambda cls: cls.__name__)
def test_every_message_can_be_made_of_its_own_defaults(cls: type[Message]) -> None:
    defaults = {name: each.default_value() for name, each in cls.schema.rows.items()}
    assert cls(**defaults) == cls()
    assert repr(cls()) == f"{cls.__name__}()"
