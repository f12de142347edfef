/*
 * Breadth-first search, level by level, in a graph as of Graph500: an R-MAT generator, vertices dealt out to the PEs in blocks. The kernel of a
 * level claims each neighbour's parent word by a compare-and-swap at its owner, and puts what it has claimed into the owner's next
 * list. Afterwards parents, levels and edges are checked by all PEs, as Graph500 does.
 *
 *   bfs [SCALE [EDGES [ROOTS]]]      2^SCALE vertices, EDGES for each of them, and searches; 12 16 4
 */
#include "device.h"

#include <algorithm>
#include <vector>

static long vertices, each; /* of all PEs, of one */

MP_HOST_DEVICE uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Edge `number`, the same whoever asks: 57, 19, 19 and 5 of a hundred in the four quarters of the matrix, level by level. */
static void edge(long number, int scale, long *from, long *to) {
    uint64_t u = 0, v = 0;
    for (int bit = 0; bit < scale; ++bit) {
        const uint64_t dice = mix((uint64_t)number * 64 + (uint64_t)bit + 1) % 100;
        u = 2 * u + (dice >= 76);
        v = 2 * v + ((dice >= 57 && dice < 76) || dice >= 95);
    }
    /* Vertices with many edges do not lie together: an odd factor is a permutation. */
    const uint64_t mask = (uint64_t)vertices - 1;
    *from = (long)((u * 0x9e3779b97f4a7c15u + 12345) & mask);
    *to = (long)((v * 0x9e3779b97f4a7c15u + 12345) & mask);
}

/* This PE's part of the graph: neighbours of its vertex i are those from first[i] to first[i + 1]. */
struct Graph {
    const long *first;
    const long *neighbours;
    long *parent;            /* of each vertex of this PE, or -1 */
    long *level;
    unsigned char *claimed;  /* vertices of all PEs that this one need not ask for again */
    long each;
};

KERNEL void expand(Graph graph, const long *list, long length, long *next, long *next_length) {
    for (long i = first_index(); i < length; i += index_step()) {
        const long u = list[i], mine = u % graph.each;
        for (long at = graph.first[mine]; at < graph.first[mine + 1]; ++at) {
            const long v = graph.neighbours[at];
            if (graph.claimed[v]) continue;
            graph.claimed[v] = 1;
            const int owner = (int)(v / graph.each);
            if (shmemg_long_atomic_compare_swap(graph.parent + v % graph.each, -1, u, owner) != -1) continue;
            const long place = shmemg_long_atomic_fetch_add(next_length, 1, owner);
            shmemg_long_p(next + place, v, owner);
        }
    }
    shmemg_quiet();
}
KERNEL void set_levels(Graph graph, const long *list, long length, long level) {
    for (long i = first_index(); i < length; i += index_step()) graph.level[list[i] % graph.each] = level;
}
KERNEL void clear(Graph graph, long vertices) {
    for (long i = first_index(); i < vertices; i += index_step()) graph.claimed[i] = 0;
    for (long i = first_index(); i < graph.each; i += index_step()) graph.parent[i] = graph.level[i] = -1;
}

template <class T>
static void write_to(T *device, const T *values, long count) {
    shmem_putmem(device, values, (size_t)count * sizeof(T), shmem_my_pe());
}
template <class T>
static T read_from(const T *device, int pe) {
    T value;
    shmem_getmem(&value, device, sizeof value, pe);
    return value;
}

static long sum_of(long mine) {
    static long in, out;
    in = mine;
    shmem_long_sum_reduce(SHMEM_TEAM_WORLD, &out, &in, 1);
    return out;
}
static long most_of(long mine) {
    static long in, out;
    in = mine;
    shmem_long_max_reduce(SHMEM_TEAM_WORLD, &out, &in, 1);
    return out;
}

struct End {
    long from, to;
};

/* Deals the edges out, each to the owners of both its ends, by a reservation at the owner and a put. */
static std::vector<End> deal(int scale, long edges) {
    const int me = shmem_my_pe(), n = shmem_n_pes();
    std::vector<std::vector<End>> to((size_t)n);
    for (long number = me; number < edges; number += n) {
        long u, v;
        edge(number, scale, &u, &v);
        if (u == v) continue;
        to[(size_t)(u / each)].push_back({u, v});
        to[(size_t)(v / each)].push_back({v, u});
    }
    static long *come;
    come = (long *)shmem_calloc(1, sizeof *come);
    need(come != nullptr, "the heap is too small: set SHMEM_SYMMETRIC_SIZE");
    std::vector<long> places((size_t)n);
    for (int pe = 0; pe < n; ++pe) places[(size_t)pe] = shmem_long_atomic_fetch_add(come, (long)to[(size_t)pe].size(), pe);
    shmem_barrier_all();
    const long count = *come;
    End *all = (End *)shmem_malloc((size_t)most_of(count) * sizeof *all + 1);
    need(all != nullptr, "the heap is too small: set SHMEM_SYMMETRIC_SIZE");
    for (int pe = 0; pe < n; ++pe)
        if (!to[(size_t)pe].empty()) shmem_putmem(all + places[(size_t)pe], to[(size_t)pe].data(), to[(size_t)pe].size() * sizeof(End), pe);
    shmem_barrier_all();
    const std::vector<End> mine(all, all + count);
    shmem_free(all);
    shmem_free(come);
    return mine;
}

/* What Graph500 asks of a tree. How many edges of the graph are within it, or -1 if something is wrong. */
static long check(const std::vector<long> &first, const std::vector<long> &neighbours, const Graph &graph, long root) {
    const int me = shmem_my_pe(), n = shmem_n_pes();
    /* Levels of all, so that each edge is looked at without asking. */
    std::vector<long> level((size_t)(n * each)), parent((size_t)each);
    for (int i = 0; i < n; ++i) {
        const int pe = (me + i) % n;
        shmem_getmem(&level[(size_t)(pe * each)], graph.level, (size_t)each * sizeof(long), pe);
    }
    shmem_getmem(parent.data(), graph.parent, (size_t)each * sizeof(long), me);
    long inside = 0, wrong = 0;
    for (long i = 0; i < each; ++i) {
        const long v = me * each + i, p = parent[(size_t)i], own = level[(size_t)v];
        const auto begin = neighbours.begin() + first[(size_t)i], end = neighbours.begin() + first[(size_t)i + 1];
        wrong += (p < 0) != (own < 0);
        if (v == root) wrong += p != v || own != 0;
        if (p >= 0 && v != root) wrong += p >= vertices || own != level[(size_t)p] + 1 || std::find(begin, end, p) == end;
        for (auto w = begin; w != end; ++w) {
            const long other = level[(size_t)*w];
            wrong += (own < 0) != (other < 0) || std::labs(own - other) > 1;
        }
        if (own >= 0) inside += end - begin;
    }
    const long wrongs = sum_of(wrong), all = sum_of(inside);
    return wrongs == 0 ? all / 2 : -1;
}

int main(int count, char **words) {
    start();
    const int me = shmem_my_pe(), n = shmem_n_pes();
    const int scale = (int)argument(count, words, 1, 12, 1);
    const long factor = argument(count, words, 2, 16, 1), roots = argument(count, words, 3, 4, 1);
    need(scale <= 30, "SCALE is at most 30");
    vertices = 1L << scale;
    each = (vertices + n - 1) / n;

    std::vector<End> ends = deal(scale, factor * vertices);
    std::sort(ends.begin(), ends.end(), [](End a, End b) { return a.from != b.from ? a.from < b.from : a.to < b.to; });
    std::vector<long> first((size_t)each + 1), neighbours;
    for (const End &end : ends) {
        ++first[(size_t)(end.from - me * each) + 1];
        neighbours.push_back(end.to);
    }
    for (long i = 0; i < each; ++i) first[(size_t)i + 1] += first[(size_t)i];

    const long most = most_of((long)neighbours.size());
    long *first_there = device<long>(each + 1), *neighbours_there = device<long>(most + 1);
    const Graph graph = {first_there, neighbours_there, device<long>(each), device<long>(each), device<unsigned char>(n * each), each};
    long *list = device<long>(each), *next = device<long>(each), *next_length = device<long>(1);
    write_to(first_there, first.data(), each + 1);
    write_to(neighbours_there, neighbours.data(), (long)neighbours.size());

    const long zero = 0;
    double took = 0, edges = 0;
    long deepest = 0, searched = 0, reached = 0;
    for (long seed = 0; searched < roots && seed < 64 * roots; ++seed) {
        const long root = (long)(mix((uint64_t)seed + 99) % (uint64_t)vertices), mine = root - me * each;
        const bool own = mine >= 0 && mine < each;
        /* A root has neighbours. */
        if (sum_of(own && first[(size_t)mine + 1] > first[(size_t)mine]) == 0) continue;
        ++searched;
        LAUNCH(clear, graph, n * each);
        long length = 0;
        if (own) {
            write_to(graph.parent + mine, &root, 1);
            write_to(list, &root, 1);
            length = 1;
        }
        write_to(next_length, &zero, 1);
        shmem_barrier_all();
        const double began = seconds();
        long level = 0;
        for (; sum_of(length) > 0; ++level) {
            LAUNCH(set_levels, graph, list, length, level);
            LAUNCH(expand, graph, list, length, next, next_length);
            shmem_barrier_all();
            length = read_from(next_length, me);
            std::swap(list, next);
            write_to(next_length, &zero, 1);
            shmem_barrier_all();
        }
        took += seconds() - began;
        const long inside = check(first, neighbours, graph, root);
        if (inside < 0) {
            if (me == 0) printf("bfs: WRONG tree from vertex %ld\n", root);
            shmem_finalize();
            return 1;
        }
        edges += (double)inside;
        deepest = std::max(deepest, level);
        std::vector<long> parent((size_t)each);
        shmem_getmem(parent.data(), graph.parent, (size_t)each * sizeof(long), me);
        reached = std::max(reached, sum_of(std::count_if(parent.begin(), parent.end(), [](long p) { return p >= 0; })));
    }
    need(searched > 0, "no vertex has a neighbour");
    if (me == 0)
        printf("bfs: %d PEs, 2^%d vertices, %ld edges each, %ld searches: %.3g edges a second, %ld levels, %ld vertices, right\n", n, scale, factor,
               searched, edges / took, deepest, reached);
    shmem_finalize();
    return 0;
}
