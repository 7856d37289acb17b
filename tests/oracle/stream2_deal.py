# SPDX-License-Identifier: Apache-2.0
"""Section 8 of engine/plan/STREAM2.md, written only from that page: cost of rows, and their order
in a deal window. `deal` is a dict of "window step tier bundle order K w h b"."""


def cost_of_fragment(deal, l):
    b, h, K, w = deal["b"], deal["h"], deal["K"], deal["w"]
    near = l * l if l <= w else 2 * w * l - w * w
    return b * K * l + (b - h) * l * l + h * near


def cost_of_row(deal, places):
    """`places` of each fragment."""
    return sum(cost_of_fragment(deal, l) for l in places)


def levels(costs, n):
    """The bin of each element of a list in descending order."""
    sums, bins = [0] * n, []
    for i in range(0, len(costs), n):
        level = costs[i : i + n]
        chosen = sorted(range(n), key=lambda x: (sums[x], x))[: len(level)]
        for x, cost in zip(chosen, level):
            sums[x] += cost
        bins += chosen
    return bins


def places_of_tiers(tiers, order):
    """Step 5: the place of the first, second, … tier of a step."""
    if order == "descending":
        return list(range(tiers))
    if order in ("wave", "late_wave"):
        return places_of_wave(tiers, tiers // 4 if order == "wave" else 3 * tiers // 8)
    c, places = tiers // 2, []
    for i in range(tiers):
        distance = (i + 1) // 2
        places.append(c - distance if i % 2 == 1 else c + distance)
    return places


def places_of_wave(n, c):
    if c == 0:
        return list(range(n))
    places, left, right = [], c - 1, c + 1
    for t in range(n):
        d = c - left
        if t == 0:
            places.append(c)
        elif t == n - 2:
            places.append(0)
        elif left >= 1 and (t - d) * n > 4 * d * d:
            places.append(left)
            left -= 1
        else:
            places.append(right)
            right += 1
    return places


def deal_rows(deal, costs):
    """For rows of a window with these costs: the planned row (from 0) at each place."""
    T, C, m = deal["step"], deal["tier"], deal["bundle"]
    steps = len(costs) // T
    dealt = list(range(len(costs)))
    # 1, 2
    rows = sorted(range(steps * T), key=lambda q: (-costs[q], q))
    bundles = [[] for _ in range(steps * T // m)]
    if steps:
        for q, x in zip(rows, levels([costs[q] for q in rows], len(bundles))):
            bundles[x].append(q)
    # 3
    cost = [sum(costs[q] for q in bundle) for bundle in bundles]
    ordered = sorted(range(len(bundles)), key=lambda x: (-cost[x], x))
    tiers = [ordered[i : i + C // m] for i in range(0, len(ordered), C // m)]
    # 4
    step_of = levels([sum(cost[x] for x in tier) for tier in tiers], steps) if steps else []
    for z in range(steps):
        own = [tier for tier, step in zip(tiers, step_of) if step == z]
        places = places_of_tiers(len(own), deal["order"])  # 5
        columns = levels([cost[x] for tier in own for x in tier], C // m)  # 6
        for i, x in enumerate(x for tier in own for x in tier):  # 7
            at = z * T + places[i // (C // m)] * C + columns[i] * m
            dealt[at : at + m] = bundles[x]
    return dealt
