#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) 2026 The karst authors
"""Writes the constant tables of lib/crc as C, so that no magic number stands in the source.

A polynomial over GF(2) is held here as an integer whose bit i is the coefficient of x^i.
The kernels hold them reflected: the lowest bit of a word is its highest power.  See
crc_fold.h for how the constants are used.
"""
import sys

POLY32 = 0x104C11DB7
POLY16 = 0x1100B
FOLD_WORDS = 128
KNOWN_TAIL = 256
KNOWN_WORDS = 4  # from the word with the identification to that with the PSN


def reflect(v, bits):
    return int(format(v, '0%db' % bits)[::-1], 2)


def x_power_mod(n):
    """x^n modulo the CRC-32 polynomial."""
    r = 1
    for _ in range(n):
        r <<= 1
        if r >> 32:
            r ^= POLY32
    return r


def multiply_mod(a, b):
    r = 0
    for i in reversed(range(32)):
        r <<= 1
        if r >> 32:
            r ^= POLY32
        if b >> i & 1:
            r ^= a
    return r


def quotient(num, den):
    q = 0
    while num.bit_length() >= den.bit_length():
        s = num.bit_length() - den.bit_length()
        q |= 1 << s
        num ^= den << s
    return q


# Folding by bit matrices: blocks in a group, and which of them the carried value goes to.
COLUMN_BLOCKS = 5
COLUMN_TO = (0, 1, 3, 4)


def column_bits(blocks):
    """What the bits of a column, byte by byte, stand for at the given blocks of a group."""
    return [x_power_mod(7 - b + 512 * (COLUMN_BLOCKS - 1 - k)) for k in blocks for b in range(8)]


def coordinates(v, basis):
    """The set of elements of @basis, as a bit mask, whose sum is @v."""
    rows = [(e, 1 << i) for i, e in enumerate(basis)]
    mask = 0
    for bit in reversed(range(32)):
        pivot = next(r for r in rows if r[0] >> bit & 1)
        rows = [(e ^ pivot[0], m ^ pivot[1]) if e >> bit & 1 else (e, m)
                for e, m in rows if (e, m) != pivot]
        if v >> bit & 1:
            v ^= pivot[0]
            mask ^= pivot[1]
    return mask


def column_matrices():
    """A group carried over the next one, as 8x8 matrices for vgf2p8affineqb, [to][from].

    A result's bit i is the parity of the argument and the matrix's byte 7 - i.
    """
    basis = column_bits(COLUMN_TO)
    ahead = x_power_mod(512 * COLUMN_BLOCKS)
    images = [coordinates(multiply_mod(e, ahead), basis) for e in column_bits(range(COLUMN_BLOCKS))]
    out = []
    for to in range(len(COLUMN_TO)):
        for frm in range(COLUMN_BLOCKS):
            m = 0
            for i in range(8):
                for b in range(8):
                    if images[8 * frm + b] >> (8 * to + i) & 1:
                        m |= 1 << 8 * (7 - i) + b
            out.append(m)
    return out


def byte_table(poly, bits):
    poly = reflect(poly & ((1 << bits) - 1), bits)
    out = []
    for i in range(256):
        for _ in range(8):
            i = i >> 1 ^ (poly if i & 1 else 0)
        out.append(i)
    return out


def lines(values, fmt, per_line):
    return ''.join('\t' + ' '.join(fmt % v + ',' for v in values[i:i + per_line]) + '\n'
                   for i in range(0, len(values), per_line))


def emit(f, decl, values, fmt, per_line):
    f.write('%s = {\n%s};\n\n' % (decl, lines(values, fmt, per_line)))


def emit_rows(f, decl, rows, fmt, per_line):
    f.write('%s = {\n%s};\n\n' % (decl, ''.join('{\n%s},\n' % lines(r, fmt, per_line)
                                               for r in rows)))


def icrc_ones(ip_len):
    """The ones of W7 over a packet with @ip_len bytes of IP header, from entry 64 on."""
    fields = {20: {1: 0xff, 8: 0xff, 10: 0xff, 11: 0xff},           # ToS, TTL, checksum
              40: {0: 0x0f, 1: 0xff, 2: 0xff, 3: 0xff, 7: 0xff}}    # TClass, label, HopLmt
    ones = dict(fields[ip_len])
    ones[ip_len + 6] = ones[ip_len + 7] = 0xff  # UDP checksum
    ones[ip_len + 8 + 4] = 0xff                 # BTH: FECN, BECN, reserved
    row = [0] * 256
    row[64:68] = [0xff] * 4                     # the second half of the 8 bytes for the LRH
    for at, v in ones.items():
        row[68 + at] = v
    return row


def main(path):
    slices = [byte_table(POLY32, 32)]
    for _ in range(15):
        slices.append([v >> 8 ^ slices[0][v & 0xff] for v in slices[-1]])
    # 33 bits each: the factor that carries a 64-bit word over 64 * j + 32 more bits.
    fold = [reflect(x_power_mod(64 * j + 32), 32) << 1 for j in range(FOLD_WORDS)]
    with open(path, 'w') as f:
        f.write('/* SPDX-License-Identifier: BSD-3-Clause\n'
                ' * Written by gen_tables.py at build time; do not edit.\n */\n'
                '#include "crc_kernel.h"\n\n')
        emit_rows(f, 'const uint32_t crc_slice_table[16][256]', slices, '0x%08xu', 8)
        emit(f, 'const uint64_t crc_fold_table[CRC_FOLD_WORDS] karst_cache_aligned',
             fold[::-1], '0x%09xull', 4)
        emit_rows(f, 'const uint64_t crc_known_table[CRC_KNOWN_TAIL / 8 + 1][2] karst_aligned(16)',
                  [[fold[i + KNOWN_WORDS], fold[i]] for i in range(KNOWN_TAIL // 8 + 1)],
                  '0x%09xull', 2)
        emit(f, 'const uint64_t crc_barrett[2] karst_aligned(16)',
             [reflect(quotient(1 << 96, POLY32) >> 1, 64), reflect(POLY32, 33)], '0x%016xull', 2)
        m = column_matrices()
        emit_rows(f, 'const uint64_t crc_column_matrices[4][5] karst_cache_aligned',
                  [m[i:i + 5] for i in range(0, 20, 5)], '0x%016xull', 5)
        emit(f, 'const uint16_t crc_vcrc_table[256]', byte_table(POLY16, 16), '0x%04xu', 8)
        # 16 bytes at offset n: the shuffle that moves the low n bytes of a vector to its top.
        emit(f, 'const uint8_t crc_shift_table[32]', [0x80] * 16 + list(range(16)), '0x%02x', 16)
        emit(f, 'const uint8_t crc_iota[64] karst_cache_aligned', list(range(64)), '%2d', 16)
        emit_rows(f, 'const uint8_t crc_icrc_ones[2][CRC_ICRC_ONES]',
                  [icrc_ones(20), icrc_ones(40)], '0x%02x', 16)



if __name__ == '__main__':
    main(sys.argv[1])
