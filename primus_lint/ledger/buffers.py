"""Gradient (and parameter) buffers of Megatron's DistributedDataParallel: buckets, alignment and padding.

Rules (megatron-core `_ParamAndGradBuffer`, held to the byte against the real objects in tests/oracle): one buffer per
model chunk and grid (dense: group dp*cp; expert: expert data parallel). Parameters lie in reverse registration order.
With the distributed optimizer each starts at a multiple of 64 elements and each bucket ends at a multiple of
lcm(group, 128), or lcm(group, 128, 65536) with `ddp_pad_buckets_for_high_nccl_busbw`; without it nothing is padded.
A bucket closes once it holds `bucket_size` elements; without overlapped reduction, on every pipeline rank but the
first and in every model chunk after the first there is no such limit. A weight flagged `shared_embedding` gets a
bucket of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from primus_lint.formula import ceil_div, lcm, maximum, minimum, round_up, where
from primus_lint.ledger.params import numel
from primus_lint.tuples import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from primus_lint.ledger.params import Param, Segment
    from primus_lint.ledger.sizes import Sizes

PARAM_ALIGNMENT = 64  # elements
BUCKET_ALIGNMENT = 128
NCCL_ALIGNMENT = 65536
NO_LIMIT = 1 << 62  # elements; for the elements of a grid whose buckets never close


class Buffer(NamedTuple):
    """One buffer: padded and real elements, group size, bucket ends and the gaps (start, end) without parameters.

    On a grid of recipes `numel` is an upper bound (see `bounded`), `ends` and `gaps` are empty.
    """

    numel: Any
    unpadded: Any
    group: Any
    ends: tuple[int, ...]
    gaps: tuple[tuple[int, int], ...]


def bucket_size(sizes: Sizes, pp_rank: int, chunk_index: int) -> Any:
    """Elements after which a bucket closes; None: never. Default max(40e6, 1e6*dp*cp) (Megatron's training.py)."""
    optimizer = sizes.run.optimizer
    if pp_rank > 0 or chunk_index > 0 or optimizer.overlap_grad_reduce is False:
        return None
    size = maximum(40_000_000, 1_000_000 * sizes.dpcp) if optimizer.bucket_size is None else optimizer.bucket_size
    return where(optimizer.overlap_grad_reduce, size, NO_LIMIT)


def group_size(sizes: Sizes, expert: bool) -> Any:
    """Ranks over which a buffer is sharded: dp*cp or expert-dp, divided by the distributed-optimizer instances."""
    group = where(sizes.ep > 1, sizes.edp, sizes.dpcp) if expert else sizes.dpcp
    return group // sizes.run.optimizer.instances


def divisor(sizes: Sizes, group: Any) -> Any:
    """What the end of a bucket is padded to, in elements."""
    padded = NCCL_ALIGNMENT if sizes.run.optimizer.pad_buckets_for_nccl else BUCKET_ALIGNMENT
    return lcm(group, padded)


def backwards(segments: list[Segment], expert: bool) -> Iterator[Param]:
    """The parameters of one grid in reverse registration order, equal neighbours one by one."""
    for segment in reversed(segments):
        chosen = [param for param in reversed(segment.params) if param.expert is expert]
        for _ in range(segment.repeats):
            for param in chosen:
                for _ in range(param.count):
                    yield param


def exact(
    segments: list[Segment], expert: bool, group: int, limit: int | None, end_multiple: int, alignment: int
) -> Buffer:
    """Walk the parameters as the real buffer does. Python integers only."""
    position = start = held = real = 0
    ends: list[int] = []
    gaps: list[tuple[int, int]] = []
    for param in backwards(segments, expert):
        numel = param.numel
        real += numel
        aligned = -(-position // alignment) * alignment
        own = param.shared and alignment > 1
        if own and held:
            end = -(-aligned // end_multiple) * end_multiple
            if end > position:
                gaps.append((position, end))
            ends.append(end)
            position = start = aligned = end
            held = 0
        if aligned > position:
            gaps.append((position, aligned))
        end = aligned + numel
        held += 1
        if own or (limit is not None and end - start >= limit):
            padded = -(-end // end_multiple) * end_multiple
            if padded > end:
                gaps.append((end, padded))
            ends.append(padded)
            position = start = padded
            held = 0
        else:
            position = end
    if held:
        padded = -(-position // end_multiple) * end_multiple
        if padded > position:
            gaps.append((position, padded))
        ends.append(padded)
        position = padded
    return Buffer(position, real, group, tuple(ends), tuple(gaps))


def bounded(segments: list[Segment], expert: bool, group: Any, limit: Any, end_multiple: Any, alignment: int) -> Buffer:
    """Upper bound of the padded length, for arrays and for long lists.

    Exact while every length is a multiple of 64 and there is one bucket. Otherwise each parameter adds at most its
    rounding to 64, and each of the at most `real // limit + shared + 1` buckets less than `end_multiple`.
    """
    real: Any = 0
    aligned: Any = 0
    buckets: Any = 1
    any_param = False
    for segment in segments:
        for param in segment.params:
            if param.expert is not expert:
                continue
            any_param = True
            count = param.count * segment.repeats
            real = real + param.numel * count
            aligned = aligned + round_up(param.numel, alignment) * count
            if param.shared and alignment > 1:
                buckets = buckets + 1
    if not any_param:
        return Buffer(0, 0, group, (), ())
    if limit is None:
        extra = buckets - 1
    else:
        extra = buckets - 1 + real // limit
    # lengths are multiples of the alignment after rounding, so a bucket end adds at most the difference
    numel = round_up(aligned + extra * (end_multiple - alignment), end_multiple)
    return Buffer(numel, real, group, (), ())


def buffer(sizes: Sizes, segments: list[Segment], expert: bool, pp_rank: int, chunk_index: int) -> Buffer | None:
    """The buffer of one chunk and grid; None when the chunk has no such parameter. `segments` of `params` (equal chunks have
    the same list) are worked out once."""
    key = "buffer", id(segments), expert, pp_rank > 0 or chunk_index > 0
    made = sizes.once(key, lambda: (segments, _buffer(sizes, segments, expert, pp_rank, chunk_index)))
    found: Buffer | None = made[1]  # the list is kept with it, so that no other one gets its id
    return found


def _buffer(sizes: Sizes, segments: list[Segment], expert: bool, pp_rank: int, chunk_index: int) -> Buffer | None:
    if not any(param.expert is expert and _positive(param.count) for s in segments for param in s.params):
        return None
    group = group_size(sizes, expert)
    limit = bucket_size(sizes, pp_rank, chunk_index)
    sharded = sizes.run.optimizer.sharding == "distributed"
    end_multiple = divisor(sizes, group) if sharded else 1
    alignment = PARAM_ALIGNMENT if sharded else 1
    if not sizes.scalar:
        return bounded(segments, expert, group, limit, end_multiple, alignment)
    if limit is None and _simple(segments, expert, alignment):
        real = numel(segments, expert)
        end = -(-real // end_multiple) * end_multiple
        return Buffer(end, real, group, (end,), ((real, end),) if end > real else ())
    return exact(segments, expert, group, limit, end_multiple, alignment)


def _positive(value: Any) -> bool:
    """Whether a count is (anywhere) positive."""
    return bool(value) if isinstance(value, int) else True


def _simple(segments: list[Segment], expert: bool, alignment: int) -> bool:
    """One bucket without inner gaps: nothing is shared and every length is a multiple of the alignment."""
    for segment in segments:
        for param in segment.params:
            if param.expert is expert and ((param.shared and alignment > 1) or param.numel % alignment):
                return False
    return True


def owned(buffer: Buffer, index: Any) -> Any:
    """Real elements that data-parallel rank `index` owns: its 1/group slice of every bucket, without the gaps.

    On a grid an upper bound: a full slice.
    """
    if not buffer.ends:
        return _slice(buffer)
    total = start = 0
    gaps = iter(buffer.gaps)
    gap = next(gaps, None)
    for end in buffer.ends:
        width = (end - start) // buffer.group
        low, high = start + index * width, start + (index + 1) * width
        total += width
        while gap is not None and gap[0] < end:
            total -= max(0, min(gap[1], high) - max(gap[0], low))
            if gap[1] > end:
                break
            gap = next(gaps, None)
        start = end
    return total


def shards(segments: list[Segment], expert: bool, buffer: Buffer, index: int) -> list[int]:
    """The pieces of parameters that make up the slice of data-parallel rank `index`, in the order of the buffer.

    Python integers only; `buffer` is the exact one of these segments.
    """
    out: list[int] = []
    ends = list(buffer.ends)
    bucket = start = position = 0
    alignment = PARAM_ALIGNMENT if buffer.numel != buffer.unpadded else 1
    for param in backwards(segments, expert):
        begin = -(-position // alignment) * alignment
        if begin + param.numel > ends[bucket]:
            start = begin = ends[bucket]
            bucket += 1
        position = begin + param.numel
        width = (ends[bucket] - start) // buffer.group
        piece = min(position, start + (index + 1) * width) - max(begin, start + index * width)
        if piece > 0:
            out.append(piece)
    return out


def _slice(buffer: Buffer) -> Any:
    """Full slice, but never more than all real elements."""
    return minimum(ceil_div(buffer.numel, buffer.group), buffer.unpadded)
