"""Runs a program under a filter of system calls, as container runtimes and systemd do (seccomp(2), mode filter).

    seccomp.py (allow|deny) ERRNO NAME,NAME,... PROGRAM ARGUMENT...

`allow` lets the named calls through, `deny` all others; what isn't let through fails with ERRNO. x86-64 only. The numbers
come from the kernel's header, as no library in Python knows them.
"""

import ctypes
import errno
import os
import re
import struct
import sys

HEADER = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"
AUDIT_ARCH_X86_64 = 0xC000003E
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
RET_ALLOW, RET_ERRNO = 0x7FFF0000, 0x00050000
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06


def instruction(code, value, if_true=0, if_false=0):
    return struct.pack("HBBI", code, if_true, if_false, value)


def program(mode, number_of_error, names):
    with open(HEADER, encoding="ascii") as header:
        numbers = dict(re.findall(r"#define __NR_(\w+) (\d+)", header.read()))
    refused = RET_ERRNO | number_of_error
    named, others = (RET_ALLOW, refused) if mode == "allow" else (refused, RET_ALLOW)
    # Another architecture's calls have other numbers: they are refused.
    yield instruction(LOAD, 4)
    yield instruction(JUMP_IF_EQUAL, AUDIT_ARCH_X86_64, 1, 0)
    yield instruction(RETURN, refused)
    yield instruction(LOAD, 0)
    for name in names:
        # Names of other architectures are in systemd's lists as well.
        if name in numbers:
            yield instruction(JUMP_IF_EQUAL, int(numbers[name]), 0, 1)
            yield instruction(RETURN, named)
    yield instruction(RETURN, others)


def main():
    mode, name_of_error, names, *command = sys.argv[1:]
    code = list(program(mode, getattr(errno, name_of_error), names.split(",")))
    filters = ctypes.create_string_buffer(b"".join(code))
    head = struct.pack("HxxxxxxP", len(code), ctypes.addressof(filters))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, head, 0, 0)):
        if libc.prctl(*arguments) != 0:
            sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    os.execv(command[0], command)


main()
