"""The block cache of one vLLM worker has a pool of blocks, a free list in order of reuse, a table of contents.

A *block* holds `page` tokens and belongs to the requests that count in its `ref`; at 0 it is on the free list and may
be handed out, from the front. A full block is *hashed*: found by what it and all blocks before it contain, that is by
the forest node of its last token and its depth. It keeps its hash on the free list and loses it when it is handed out,
which is the eviction. Blocks of equal content, computed side by side, are twins: the first one made answers look-ups.
What a request has generated beyond the forest is hashed under the request's own number; only itself can find it again.

Source: vllm/v1/core/block_pool.py and single_type_kv_cache_manager.py of 0.13.0 and 0.33.0, for one group of full
attention. They differ in where blocks without a hash go: to the end of the free list, or (`front_free`) to its front.
"""

from __future__ import annotations

from kvgym.engine.cache.radix import bucket, fill_path, path_at
from kvgym.engine.pages import cacheable, page_ceil
from kvgym.engine.state import Cache, Sim
from kvgym.jit.door import i64, njit
from kvgym.types import REMOVED, STORED


@njit()
def block_bucket(c: Cache, w: int, node: int, depth: int) -> int:
    """Return the home position of a content in the table of blocks."""
    return bucket(c.block_table, w, node & 0x7FFFFFFFFFFFFFFF, depth)


@njit()
def block_position(c: Cache, w: int, node: int, depth: int) -> int:
    """Return where the table holds the content (node, depth) of worker w, or the free position where it would go."""
    mask = len(c.block_table) - 1
    i = block_bucket(c, w, node, depth)
    while True:
        b = i64(c.block_table[i])
        if b < 0 or (c.blocks[b].node == node and c.blocks[b].depth == depth and c.blocks[b].worker == w):
            return i
        i = (i + 1) & mask


@njit()
def leave_table(c: Cache, hole: int) -> None:
    """Free position `hole` of the table; later entries of the probe chain move up."""
    mask = len(c.block_table) - 1
    i = hole
    while True:
        i = (i + 1) & mask
        b = i64(c.block_table[i])
        if b < 0:
            break
        home = block_bucket(c, i64(c.blocks[b].worker), i64(c.blocks[b].node), i64(c.blocks[b].depth))
        if ((i - home) & mask) >= ((i - hole) & mask):
            c.block_table[hole] = b
            hole = i
    c.block_table[hole] = -1


@njit()
def note_block(c: Cache, kind: int, w: int, node: int, depth: int) -> None:
    """Log that worker w has stored or removed the last block of the prefix (node, depth), if that is in the forest."""
    if c.options[0].log == 0 or node < 0:
        return
    clock = c.clock[0]
    row = c.log[clock.logged]
    clock.logged += 1
    row.time_s, row.worker, row.incarnation = clock.now_s, w, c.workers[w].incarnation
    row.kind, row.node, row.first, row.last = kind, node, depth - c.options[0].page, depth


@njit()
def add_hash(c: Cache, w: int, b: int, node: int, depth: int) -> None:
    """Block b holds the end of the prefix (node, depth) from now on; a twin comes behind those that are there."""
    block = c.blocks[b]
    block.node, block.depth, block.twin = node, depth, -1
    i = block_position(c, w, node, depth)
    other = i64(c.block_table[i])
    if other < 0:
        c.block_table[i] = b
        note_block(c, STORED, w, node, depth)
        return
    while c.blocks[other].twin >= 0:
        other = i64(c.blocks[other].twin)
    c.blocks[other].twin = b


@njit()
def drop_hash(c: Cache, w: int, b: int) -> None:
    """Block b is about to be overwritten: nothing finds it any more."""
    block = c.blocks[b]
    if block.depth == 0:
        return
    i = block_position(c, w, i64(block.node), i64(block.depth))
    other = i64(c.block_table[i])
    if other != b:
        while c.blocks[other].twin != b:
            other = i64(c.blocks[other].twin)
        c.blocks[other].twin = block.twin
    elif block.twin >= 0:
        c.block_table[i] = block.twin
    else:
        leave_table(c, i)
        note_block(c, REMOVED, w, i64(block.node), i64(block.depth))
    block.depth = 0
    block.twin = -1
    c.workers[w].evicted += c.options[0].page


@njit()
def unlink(c: Cache, w: int, b: int) -> None:
    """Take block b off the free list."""
    worker, block = c.workers[w], c.blocks[b]
    if block.prev >= 0:
        c.blocks[block.prev].next = block.next
    else:
        worker.free_head = block.next
    if block.next >= 0:
        c.blocks[block.next].prev = block.prev
    else:
        worker.free_tail = block.prev
    worker.free -= c.options[0].page
    worker.private += c.options[0].page


@njit()
def link_last(c: Cache, w: int, b: int) -> None:
    """Put block b at the end of the free list."""
    worker, block = c.workers[w], c.blocks[b]
    block.next, block.prev = -1, worker.free_tail
    if worker.free_tail >= 0:
        c.blocks[worker.free_tail].next = b
    else:
        worker.free_head = b
    worker.free_tail = b
    worker.free += c.options[0].page
    worker.private -= c.options[0].page


@njit()
def link_after(c: Cache, w: int, b: int, before: int) -> None:
    """Put block b on the free list behind block `before`; -1: at its front."""
    worker, block = c.workers[w], c.blocks[b]
    following = i64(worker.free_head) if before < 0 else i64(c.blocks[before].next)
    if following < 0:
        link_last(c, w, b)
        return
    block.prev, block.next = before, following
    c.blocks[following].prev = b
    if before < 0:
        worker.free_head = b
    else:
        c.blocks[before].next = b
    worker.free += c.options[0].page
    worker.private -= c.options[0].page


@njit()
def hold(c: Cache, w: int, b: int) -> None:
    """Another request holds block b, which was found by its content."""
    if c.blocks[b].ref == 0:
        unlink(c, w, b)
    c.blocks[b].ref += 1


@njit()
def take_block(c: Cache, w: int) -> int:
    """Hand out the first block of the free list, which is not empty."""
    b = i64(c.workers[w].free_head)
    unlink(c, w, b)
    drop_hash(c, w, b)
    c.blocks[b].ref = 1
    return b


@njit()
def release_blocks(c: Cache, x: Sim, w: int, r: int) -> None:
    """Request r gives up its blocks, the last one first, and its row."""
    live, worker = x.live[r], c.workers[w]
    front = i64(-1)
    for k in range(i64(live.blocks) - 1, -1, -1):
        b = i64(x.tables[live.row, k])
        c.blocks[b].ref -= 1
        if c.blocks[b].ref > 0:
            continue
        if worker.front_free == 1 and c.blocks[b].depth == 0:
            link_after(c, w, b, front)
            front = b
        else:
            link_last(c, w, b)
    live.blocks = live.hashed = 0
    give_row(c, x, r)


@njit()
def take_row(c: Cache, x: Sim, r: int) -> None:
    """Request r gets a row of `tables` for the list of its blocks; there are as many as can run."""
    c.clock[0].free_rows -= 1
    x.live[r].row = x.rows[c.clock[0].free_rows]


@njit()
def give_row(c: Cache, x: Sim, r: int) -> None:
    """Request r gives back its row of `tables`."""
    x.rows[c.clock[0].free_rows] = x.live[r].row
    c.clock[0].free_rows += 1
    x.live[r].row = -1


@njit()
def hash_blocks(c: Cache, x: Sim, w: int, r: int, tokens: int) -> None:
    """Hash the full blocks among the first `tokens` tokens of request r that are not yet."""
    live, page = x.live[r], c.options[0].page
    if tokens // page <= live.hashed:
        return
    known = known_tokens(c, x, r)
    fill_path(c, block_path(x, r))
    i = i64(1)
    for k in range(i64(live.hashed), tokens // page):
        depth = (k + 1) * page
        node = i64(-2 - r)
        if depth <= known:
            i = path_at(c, i, depth)
            node = i64(c.path[i])
        add_hash(c, w, i64(x.tables[live.row, k]), node, depth)
    live.hashed = tokens // page


@njit()
def known_tokens(c: Cache, x: Sim, r: int) -> int:
    """Tokens of request r that the forest knows, whole blocks: its prompt, and its answer if a later prompt has it."""
    return cacheable(c, x, r, i64(x.requests[r].prompt_tokens + x.requests[r].output_tokens))


@njit()
def block_path(x: Sim, r: int) -> int:
    """Forest node on whose path the prompt of request r lies, and its answer as far as the forest knows it."""
    return i64(x.requests[r].output_node if x.requests[r].output_node >= 0 else x.requests[r].prompt_node)


@njit()
def find_blocks(c: Cache, x: Sim, w: int, r: int, tokens: int) -> tuple[int, int]:
    """Write the blocks that hold the longest found prefix of request r, at most `tokens` tokens, to its row.

    Returns:
        (blocks found, how many of them are on the free list).
    """
    live, page = x.live[r], c.options[0].page
    known = known_tokens(c, x, r)
    fill_path(c, block_path(x, r))
    free, i = i64(0), i64(1)
    for k in range(tokens // page):
        depth = (k + 1) * page
        node = i64(-2 - r)
        if depth <= known:
            i = path_at(c, i, depth)
            node = i64(c.path[i])
        b = i64(c.block_table[block_position(c, w, node, depth)])
        if b < 0:
            return k, free
        x.tables[live.row, k] = b
        free += c.blocks[b].ref == 0
    return tokens // page, free


@njit()
def peek_blocks(c: Cache, w: int, node: int, tokens: int) -> int:
    """Return how many tokens of the prefix (node, tokens) worker w holds; changes nothing."""
    page = c.options[0].page
    fill_path(c, node)
    i = i64(1)
    for depth in range(page, tokens + 1, page):
        i = path_at(c, i, depth)
        if c.block_table[block_position(c, w, i64(c.path[i]), depth)] < 0:
            return depth - page
    return page_ceil(tokens - page + 1, page)


@njit()
def clear_blocks(c: Cache, w: int) -> None:
    """Empty worker w: all its blocks are free and without a hash, in their first order."""
    worker = c.workers[w]
    first, count = i64(worker.first_block), worker.capacity // c.options[0].page
    for b in range(first, first + count):
        if c.blocks[b].depth > 0:
            i = block_position(c, w, i64(c.blocks[b].node), i64(c.blocks[b].depth))
            if c.block_table[i] == b:
                leave_table(c, i)
            c.blocks[b].depth = 0
        c.blocks[b].ref = 0
        c.blocks[b].prev, c.blocks[b].next = b - 1, b + 1
    c.blocks[first].prev = c.blocks[first + count - 1].next = -1
    worker.free_head, worker.free_tail = first, first + count - 1
