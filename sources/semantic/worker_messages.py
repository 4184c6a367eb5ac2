"""The messages between the server and the process that embeds passages, as MessagePack with a length in front."""

import msgspec
from msgspec import Struct

HEADER_BYTES = 4


class Vectors(Struct, frozen=True, tag=True):
    vectors: list[bytes]


class WorkerFailure(Struct, frozen=True, tag=True):
    """Why the model could not be loaded. The process ends after it."""

    reason: str


WorkerResponse = Vectors | WorkerFailure

encode_texts = msgspec.msgpack.Encoder().encode
decode_texts = msgspec.msgpack.Decoder(list[str]).decode
encode_response = msgspec.msgpack.Encoder().encode
decode_response = msgspec.msgpack.Decoder(WorkerResponse).decode


def frame(message: bytes) -> bytes:
    return len(message).to_bytes(HEADER_BYTES, "big") + message
