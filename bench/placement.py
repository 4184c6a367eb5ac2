"""Simulates how users are placed on database machines, and what rebalancing costs: `python -m bench.placement`.

No server is started. Sizes of users follow a log-normal distribution; costs per user and per row are the measured ones
named in docs/scale.md, which shows the output. The same arguments give the same output.
"""

import argparse
import hashlib
import heapq
import random
from collections.abc import Sequence

from msgspec import Struct

# Measured: an empty library, a row with its indexes and its vector, and moving one small tenant between two machines.
LIBRARY_BYTES = 1_300
ROW_BYTES = 3_200
MOVE_S = 3.0
# Assumed, not measured: what copying a large tenant achieves.
COPY_BYTES_PER_S = 50_000_000
# A machine may be this much fuller than the mean before users are moved.
TOLERANCE = 0.1
_SIGMA = 2.0
_GB = 1e9


class Placement(Struct):
    """Users by number, with their final sizes, and the machine of each."""

    sizes: Sequence[float]
    machines: list[int]
    count: int

    def loads(self) -> list[float]:
        loads = [0.0] * self.count
        for size, machine in zip(self.sizes, self.machines, strict=True):
            loads[machine] += size
        return loads

    def users(self) -> list[int]:
        counts = [0] * self.count
        for machine in self.machines:
            counts[machine] += 1
        return counts


class Moves(Struct):
    """What a rebalancing moved. Machines move users at the same time; `longest_s` is the time of the busiest one."""

    count: int
    total_bytes: float
    longest_s: float


def draw_sizes(users: int, rows: int, seed: int) -> list[float]:
    """Returns the bytes of each user. Together they have about `rows` rows."""
    generator = random.Random(seed)
    weights = [generator.lognormvariate(0, _SIGMA) for _ in range(users)]
    scale = rows / sum(weights)
    return [LIBRARY_BYTES + weight * scale * ROW_BYTES for weight in weights]


def place_by_hash(sizes: Sequence[float], machines: int) -> Placement:
    def machine_of(number: int) -> int:
        return int.from_bytes(hashlib.blake2b(str(number).encode(), digest_size=8).digest()) % machines

    return Placement(sizes, [machine_of(number) for number in range(len(sizes))], machines)


def place_by_load(sizes: Sequence[float], machines: int) -> Placement:
    """Places each new user on the machine with the fewest bytes at that moment. Users arrive one after the other and
    grow evenly until the end, so that their final sizes are not known when they are placed."""
    total, weighted = [0.0] * machines, [0.0] * machines
    placed = []
    for number, size in enumerate(sizes):
        machine = min(range(machines), key=lambda m: (number * total[m] - weighted[m], total[m], m))
        placed.append(machine)
        total[machine] += size
        weighted[machine] += size * number
    return Placement(sizes, placed, machines)


def rebalance(placement: Placement) -> Moves:
    """Moves users from the fullest machine to the emptiest one, the largest that fit first, until all are within the
    tolerance of the mean."""
    loads, by_machine = placement.loads(), _largest_first(placement)
    mean = sum(loads) / placement.count
    seconds = [0.0] * placement.count
    moves = Moves(0, 0.0, 0.0)
    while max(loads) > (1 + TOLERANCE) * mean or min(loads) < (1 - TOLERANCE) * mean:
        fullest, emptiest = loads.index(max(loads)), loads.index(min(loads))
        user = _take_largest(by_machine[fullest], (loads[fullest] - loads[emptiest]) / 2)
        if user is None:
            break
        size = placement.sizes[user]
        placement.machines[user] = emptiest
        heapq.heappush(by_machine[emptiest], (-size, user))
        loads[fullest] -= size
        loads[emptiest] += size
        seconds[fullest] += MOVE_S + size / COPY_BYTES_PER_S
        moves.count += 1
        moves.total_bytes += size
    moves.longest_s = max(seconds)
    return moves


def _largest_first(placement: Placement) -> list[list[tuple[float, int]]]:
    heaps: list[list[tuple[float, int]]] = [[] for _ in range(placement.count)]
    for user, machine in enumerate(placement.machines):
        heaps[machine].append((-placement.sizes[user], user))
    for heap in heaps:
        heapq.heapify(heap)
    return heaps


def _take_largest(heap: list[tuple[float, int]], at_most: float) -> int | None:
    """Takes the largest user that fits. Those that are too large for this move stay where they are."""
    too_large = []
    found = None
    while heap and found is None:
        entry = heapq.heappop(heap)
        if -entry[0] <= at_most:
            found = entry[1]
        else:
            too_large.append(entry)
    for entry in too_large:
        heapq.heappush(heap, entry)
    return found


def add_machines(placement: Placement, count: int) -> Placement:
    return Placement(placement.sizes, list(placement.machines), placement.count + count)


def describe(title: str, placement: Placement, moves: Moves | None = None) -> str:
    loads, users = placement.loads(), placement.users()
    mean = sum(loads) / len(loads)
    line = f"{title:<34} {max(users):>7,} {min(loads) / _GB:>7.1f} {max(loads) / _GB:>7.1f} {max(loads) / mean:>8.2f}"
    if moves is None:
        return line
    return f"{line} {moves.count:>7,} {moves.total_bytes / _GB:>9.1f} {moves.longest_s / 60:>8.0f}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Simulate the placement of users on database machines.")
    parser.add_argument("--users", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=1_000_000_000)
    parser.add_argument("--machines", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    sizes = draw_sizes(options.users, options.rows, options.seed)
    ordered = sorted(sizes)
    print(f"{options.users:,} users, {options.rows:,} rows, {options.machines} machines, {sum(sizes) / _GB:,.0f} GB")
    print(
        f"a user has {ordered[len(ordered) // 2] / 1e6:.1f} MB (median), {ordered[-len(ordered) // 100] / 1e6:.0f} MB "
        f"(99th percentile), {ordered[-1] / _GB:.1f} GB (largest)"
    )
    print(
        f"{'':<34} {'users':>7} {'min GB':>7} {'max GB':>7} {'max/mean':>8} {'moves':>7} {'moved GB':>9} {'minutes':>8}"
    )
    hashed = place_by_hash(sizes, options.machines)
    print(describe("placed by hash", hashed))
    placed = place_by_load(sizes, options.machines)
    print(describe("placed by load", placed))
    print(describe("placed by load, rebalanced", placed, rebalance(placed)))
    grown = add_machines(placed, 1)
    print(describe("one machine more, rebalanced", grown, rebalance(grown)))
    emptied = max(placed.users())
    print(f"emptying one machine by moving its {emptied:,} users: at least {emptied * MOVE_S / 3600:.1f} hours")


if __name__ == "__main__":
    main()
