"""frombuffer: the tensors and the errors that torch makes of bytes."""

import array

import pytest
import torch

import xgrad

from ..oracle import as_torch, same_error

BYTES = bytearray(range(16))
CALLS = {
    "all": lambda T: T.frombuffer(BYTES, dtype=T.int32),
    "a part": lambda T: T.frombuffer(BYTES, dtype=T.uint8, offset=3, count=4),
    "between elements": lambda T: T.frombuffer(BYTES, dtype=T.int32, offset=2, count=2),
    "a negative count": lambda T: T.frombuffer(BYTES, dtype=T.int64, count=-2),
    "truth values": lambda T: T.frombuffer(BYTES, dtype=T.bool), "half": lambda T: T.frombuffer(BYTES, dtype=T.float16),
    "an array": lambda T: T.frombuffer(array.array("f", [1, 2]), dtype=T.float32, requires_grad=True),
    "complex": lambda T: T.frombuffer(BYTES, dtype=T.complex64),
}  # fmt: skip
ERRORS = {
    "length": (lambda T: T.frombuffer(BYTES, dtype=T.int32, offset=2), "must be a multiple of element size"),
    "offset": (lambda T: T.frombuffer(BYTES, dtype=T.int32, offset=16), "must be non-negative and no greater than"),
    "negative offset": (lambda T: T.frombuffer(BYTES, dtype=T.int32, offset=-1), "must be non-negative"),
    "count": (lambda T: T.frombuffer(BYTES, dtype=T.int32, count=5), "must not be greater than actual buffer length"),
    "no count": (lambda T: T.frombuffer(BYTES, dtype=T.int32, count=0), "must not be 0"),
    "nothing": (lambda T: T.frombuffer(b"", dtype=T.int32), "must not be 0"),
    "a number": (lambda T: T.frombuffer(3, dtype=T.int32), "does not implement Python buffer protocol"),
    "no dtype": (lambda T: T.frombuffer(BYTES), "missing 1 required"),
    "integers": (lambda T: T.frombuffer(BYTES, dtype=T.int32, requires_grad=True), "can require gradients"),
    "every second": (lambda T: T.frombuffer(memoryview(BYTES)[::2], dtype=T.uint8), "could not retrieve buffer"),
}


@pytest.mark.parametrize("name", CALLS)
def test_values(name):
    as_torch(CALLS[name])


@pytest.mark.filterwarnings("ignore:The given buffer is not writable")  # torch's, of an empty one
@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    same_error(*ERRORS[name])


def test_the_memory_is_not_shared_and_bytes_need_not_be_writable():
    data = bytearray(4)
    found = xgrad.frombuffer(data, dtype=xgrad.uint8)
    data[0] = 7
    found[1] = 3
    assert found.tolist() == [0, 3, 0, 0]
    assert list(data) == [7, 0, 0, 0]
    assert xgrad.frombuffer(bytes(4), dtype=xgrad.float32).tolist() == [0.0]
    assert xgrad.frombuffer(data, dtype=xgrad.bfloat16).dtype == xgrad.bfloat16
    assert torch.frombuffer(data, dtype=torch.bfloat16).shape == (2,)
