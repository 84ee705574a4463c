"""What tests take away from a process before it starts."""

import ctypes
import struct

IO_URING = (425, 426, 427)  # setup, enter, register: the same numbers on every architecture


def deny_io_uring():
    """A seccomp filter of this process: io_uring's calls fail with EPERM, all others go on."""
    program = [(0x20, 0, 0, 0)]  # load the call's number
    program += [(0x15, len(IO_URING) - i, 0, call) for i, call in enumerate(IO_URING)]
    program += [(0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x00050001)]  # allow; errno 1
    code = b"".join(struct.pack("HBBI", *line) for line in program)
    buffer = ctypes.create_string_buffer(code)
    header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    prctl = libc.prctl
    prctl.argtypes = [ctypes.c_int] + [ctypes.c_void_p] * 4
    if prctl(38, 1, 0, 0, 0) or prctl(22, 2, ctypes.create_string_buffer(header), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")
