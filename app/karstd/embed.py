#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""A file as a C array: embed.py FILE NAME OUTPUT."""
import sys


def main(argv):
    if len(argv) != 4:
        print(__doc__, file=sys.stderr)
        return 2
    with open(argv[1], 'rb') as f:
        data = f.read()
    with open(argv[3], 'w', encoding='ascii') as f:
        f.write(f'static const unsigned char {argv[2]}[{len(data)}] = {{\n')
        for at in range(0, len(data), 16):
            f.write('\t' + ' '.join(f'0x{byte:02x},' for byte in data[at:at + 16]) + '\n')
        f.write('};\n')
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv))
