"""What every wire record has in common: frozen, strict, closed."""

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A frozen record that crosses the wire as JSON.

    It refuses values of another type ("1" is no integer) and members it does not know, so that a typing
    mistake in a patch is an error and never a silent loss. A change makes a new record.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", ser_json_bytes="base64")
