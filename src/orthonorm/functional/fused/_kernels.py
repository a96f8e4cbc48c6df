"""The kernels of the method "fused": each program takes the root of one matrix, or solves its Lyapunov equation."""

# A kernel's constants are annotated as such, and passed as plain numbers.
# pyright: reportArgumentType=false

import triton
import triton.language as tl

__all__ = ["LYAPUNOV_BUFFERS", "ROOT_BUFFERS", "lyapunov_kernel", "root_kernel"]

# Note [where the matrices live]
# A float64 matrix of 64 x 64 takes 32 KiB, one of 128 x 128 takes 128 KiB. The root keeps three of them alive, the
# Lyapunov equation four, and a product needs its operands in shared memory besides: at 128 that is 384 to 512 KiB plus
# 256, where an H100's multiprocessor has 256 KiB of registers (65,536 of 32 bits) and 227 KiB of shared memory for a
# program. So matrices lie in global scratch memory, which a program alone reads and writes and which its first- and
# second-level caches hold (50 MB of the latter on an H100). A product is made in tiles of 64 x 64: the accumulator is
# 32 registers a thread at 256 threads, and slices of 64 x 32 of the two factors pass through shared memory.
#
# Nothing may be prefetched across a barrier, so the kernels are launched with one stage (no software pipelining): the
# compiler pipelines the innermost loop without asking whether a store of the loop feeds its next load.

# Note [padding]
# An n x n matrix is padded to N x N, N a power of two, by the identity, whose eigenvalue 1 the iteration keeps in its
# interval, and right sides by zero. The blocks never mix: the zeros between them stay zeros.

# Matrices of scratch memory a program needs.
ROOT_BUFFERS: tl.constexpr = tl.constexpr(5)
LYAPUNOV_BUFFERS: tl.constexpr = tl.constexpr(6)


@triton.jit
def _next_scale(lower):
    """Return the scale of a step for the interval [lower, 1], and what the step makes of its lower end."""
    reach = tl.maximum(lower, 0.1)
    mu = tl.sqrt(3 / (1 + reach + reach * reach))
    return mu, tl.minimum(1.0, mu * lower * (3 - mu * mu * lower * lower) / 2)


@triton.jit
def _indices(tile, N: tl.constexpr, TILE: tl.constexpr):
    """Return the rows (TILE, 1) and the columns (1, TILE) of a tile of a matrix."""
    entries = tl.arange(0, TILE)
    return (tile // (N // TILE) * TILE + entries)[:, None], (tile % (N // TILE) * TILE + entries)[None, :]


@triton.jit
def _add_product(sum, A, B, rows, columns, SIGN: tl.constexpr, N: tl.constexpr, DEPTH: tl.constexpr):
    """Return sum + SIGN (A B) of a tile, for A and B in scratch memory."""
    depth = tl.arange(0, DEPTH)
    for start in range(0, N, DEPTH):
        a = tl.load(A + rows * N + (start + depth)[None, :])
        b = tl.load(B + (start + depth)[:, None] * N + columns)
        sum = tl.dot(SIGN * a, b, sum, out_dtype=tl.float64)
    return sum


@triton.jit
def _pad(X, into, divisor, n, DIAGONAL: tl.constexpr, N: tl.constexpr, TILE: tl.constexpr):
    """Write X / divisor, padded to N x N with zeros and DIAGONAL, to scratch memory."""
    for tile in range((N // TILE) * (N // TILE)):
        rows, columns = _indices(tile, N, TILE)
        inside = (rows < n) & (columns < n)
        x = tl.load(X + rows * n + columns, inside, 0.0) / divisor
        tl.store(into + rows * N + columns, tl.where(inside, x, DIAGONAL * (rows == columns).to(tl.float64)))


@triton.jit
def _norm(X, n, N: tl.constexpr, TILE: tl.constexpr):
    """Return the Frobenius norm of an n x n matrix."""
    total = tl.zeros((), tl.float64)
    for tile in range((N // TILE) * (N // TILE)):
        rows, columns = _indices(tile, N, TILE)
        x = tl.load(X + rows * n + columns, (rows < n) & (columns < n), 0.0)
        total += tl.sum(x * x)
    return tl.sqrt(total)


@triton.jit(do_not_specialize=["n", "steps"])
def root_kernel(
    Sigma, P, bound, scratch, n, steps, FLOOR: tl.constexpr, N: tl.constexpr, TILE: tl.constexpr, DEPTH: tl.constexpr
):  # fmt: skip
    """Write P = Sigma^{-1/2} and its norm: `steps` of Y, Z <- Y T, T Z with T = (3 mu I - mu^3 Z Y) / 2."""
    matrix = tl.program_id(0).to(tl.int64)
    Sigma += matrix * n * n
    P += matrix * n * n
    Ys = scratch + matrix * (ROOT_BUFFERS * N * N)
    Zs, T = Ys + 2 * N * N, Ys + 4 * N * N
    size = _norm(Sigma, n, N, TILE)
    _pad(Sigma, Ys, size, n, 1.0, N, TILE)
    for tile in range((N // TILE) * (N // TILE)):
        rows, columns = _indices(tile, N, TILE)
        tl.store(Zs + rows * N + columns, (rows == columns).to(tl.float64))
    tl.debug_barrier()
    lower = tl.sqrt(tl.full((), FLOOR, tl.float64))
    for step in range(steps):
        mu, lower = _next_scale(lower)
        Y, Y_next = Ys + step % 2 * (N * N), Ys + (1 - step % 2) * (N * N)
        Z, Z_next = Zs + step % 2 * (N * N), Zs + (1 - step % 2) * (N * N)
        _write_factor(T, Z, Y, mu, N, TILE, DEPTH)
        tl.debug_barrier()
        for tile in range((N // TILE) * (N // TILE)):
            rows, columns = _indices(tile, N, TILE)
            zero = tl.zeros((TILE, TILE), tl.float64)
            tl.store(Y_next + rows * N + columns, _add_product(zero, Y, T, rows, columns, 1, N, DEPTH))
            tl.store(Z_next + rows * N + columns, _add_product(zero, T, Z, rows, columns, 1, N, DEPTH))
        tl.debug_barrier()
    _write_root(Zs + steps % 2 * (N * N), P, bound + matrix, 2 * tl.sqrt(size), n, N, TILE)


@triton.jit
def _write_factor(T, Z, Y, mu, N: tl.constexpr, TILE: tl.constexpr, DEPTH: tl.constexpr):
    """Write T = (3 mu I - mu^3 Z Y) / 2."""
    for tile in range((N // TILE) * (N // TILE)):
        rows, columns = _indices(tile, N, TILE)
        ZY = _add_product(tl.zeros((TILE, TILE), tl.float64), Z, Y, rows, columns, 1, N, DEPTH)
        eye = (rows == columns).to(tl.float64)
        tl.store(T + rows * N + columns, 1.5 * mu * eye - 0.5 * mu * mu * mu * ZY)


@triton.jit
def _write_root(Z, P, bound, divisor, n, N: tl.constexpr, TILE: tl.constexpr):
    """Write the symmetric part of Z, scaled, as P, and its norm."""
    total = tl.zeros((), tl.float64)
    for tile in range((N // TILE) * (N // TILE)):
        rows, columns = _indices(tile, N, TILE)
        inside = (rows < n) & (columns < n)
        z = tl.load(Z + rows * N + columns)
        # The other half is read at exchanged indices, so that P is symmetric to the last bit.
        p = tl.where(inside, (z + tl.load(Z + columns * N + rows)) / divisor, 0.0)
        total += tl.sum(p * p)
        tl.store(P + rows * n + columns, p, inside)
    tl.store(bound, tl.sqrt(total))


@triton.jit(do_not_specialize=["n", "steps"])
def lyapunov_kernel(
    P, Q, bound, out, scratch, n, steps,
    ADJOINT: tl.constexpr, FLOOR: tl.constexpr, N: tl.constexpr, TILE: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Write Y with P Y + Y P = Q; where ADJOINT, write P Y with the right side P Q + Q^T P."""
    matrix = tl.program_id(0).to(tl.int64)
    P += matrix * n * n
    Q += matrix * n * n
    out += matrix * n * n
    As = scratch + matrix * (LYAPUNOV_BUFFERS * N * N)
    Bs, A2, AB = As + 2 * N * N, As + 4 * N * N, As + 5 * N * N
    size = tl.load(bound + matrix)
    _pad(P, As, size, n, 1.0, N, TILE)
    if ADJOINT:
        _pad(Q, A2, 1.0, n, 0.0, N, TILE)
        tl.debug_barrier()
        _write_right_side(Bs, As, A2, AB, N, TILE, DEPTH)
    else:
        _pad(Q, Bs, size, n, 0.0, N, TILE)
    tl.debug_barrier()
    lower = tl.sqrt(tl.full((), FLOOR, tl.float64))
    for step in range(steps):
        mu, lower = _next_scale(lower)
        A, A_next = As + step % 2 * (N * N), As + (1 - step % 2) * (N * N)
        B, B_next = Bs + step % 2 * (N * N), Bs + (1 - step % 2) * (N * N)
        _write_squares(A2, AB, A, B, N, TILE, DEPTH)
        tl.debug_barrier()
        _write_sign(A_next, B_next, A, B, A2, AB, mu, N, TILE, DEPTH)
        tl.debug_barrier()
    if ADJOINT:
        _pad(P, A2, 1.0, n, 1.0, N, TILE)
        tl.debug_barrier()
    _write_solution(Bs + steps % 2 * (N * N), A2, out, n, ADJOINT, N, TILE, DEPTH)


@triton.jit
def _write_right_side(B, A, Q, AQ, N: tl.constexpr, TILE: tl.constexpr, DEPTH: tl.constexpr):
    """Write B = A Q + (A Q)^T, by way of AQ."""
    for tile in range((N // TILE) * (N // TILE)):
        rows, columns = _indices(tile, N, TILE)
        zero = tl.zeros((TILE, TILE), tl.float64)
        tl.store(AQ + rows * N + columns, _add_product(zero, A, Q, rows, columns, 1, N, DEPTH))
    tl.debug_barrier()
    for tile in range((N // TILE) * (N // TILE)):
        rows, columns = _indices(tile, N, TILE)
        x = tl.load(AQ + rows * N + columns) + tl.load(AQ + columns * N + rows)
        tl.store(B + rows * N + columns, x)


@triton.jit
def _write_squares(A2, AB, A, B, N: tl.constexpr, TILE: tl.constexpr, DEPTH: tl.constexpr):
    """Write A A and A B."""
    for tile in range((N // TILE) * (N // TILE)):
        rows, columns = _indices(tile, N, TILE)
        zero = tl.zeros((TILE, TILE), tl.float64)
        tl.store(A2 + rows * N + columns, _add_product(zero, A, A, rows, columns, 1, N, DEPTH))
        tl.store(AB + rows * N + columns, _add_product(zero, A, B, rows, columns, 1, N, DEPTH))


@triton.jit
def _write_sign(A_next, B_next, A, B, A2, AB, mu, N: tl.constexpr, TILE: tl.constexpr, DEPTH: tl.constexpr):
    """Write a step of the sign function: Note [Lyapunov by the sign function]."""
    a, b = 1.5 * mu, 0.5 * mu * mu * mu
    for tile in range((N // TILE) * (N // TILE)):
        rows, columns = _indices(tile, N, TILE)
        zero = tl.zeros((TILE, TILE), tl.float64)
        cubic = _add_product(zero, A, AB, rows, columns, 1, N, DEPTH)
        cubic = _add_product(cubic, AB, A, rows, columns, -1, N, DEPTH)
        cubic = _add_product(cubic, B, A2, rows, columns, 1, N, DEPTH)
        tl.store(B_next + rows * N + columns, a * tl.load(B + rows * N + columns) - b * cubic)
        A3 = _add_product(zero, A2, A, rows, columns, 1, N, DEPTH)
        tl.store(A_next + rows * N + columns, a * tl.load(A + rows * N + columns) - b * A3)


@triton.jit
def _write_solution(B, P, out, n, ADJOINT: tl.constexpr, N: tl.constexpr, TILE: tl.constexpr, DEPTH: tl.constexpr):
    """Write Y = B / 2, or P Y where ADJOINT."""
    for tile in range((N // TILE) * (N // TILE)):
        rows, columns = _indices(tile, N, TILE)
        if ADJOINT:
            y = _add_product(tl.zeros((TILE, TILE), tl.float64), P, B, rows, columns, 1, N, DEPTH)
        else:
            y = tl.load(B + rows * N + columns)
        tl.store(out + rows * n + columns, 0.5 * y, (rows < n) & (columns < n))
