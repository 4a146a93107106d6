// The example of Gibraltar's paper (appendix B), with random codes and losses: initialize,
// allocate, fill, generate parity, lose buffers, arrange the intact ones, recover, restore order.
//
//   gibraltar SEED ROUNDS

#include <gibraltar.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUFFERS_MAX 256

static unsigned long long state;

// xorshift64*: the same numbers from the same seed, wherever the program runs.
static unsigned draw(unsigned limit)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (unsigned)((state * 2685821657736338717ULL) >> 33) % limit;
}

static void check(int code, const char *call)
{
    if (code != 0) {
        fprintf(stderr, "%s: %d: %s\n", call, code, recoded_error_text(code));
        exit(1);
    }
}

// Marks up to m of the k + m buffers as lost.
static void fail(int *fail_config, int k, int m)
{
    int lost = (int)draw((unsigned)m + 1);
    memset(fail_config, 0, sizeof(int) * (size_t)(k + m));
    while (lost > 0) {
        int id = (int)draw((unsigned)(k + m));
        lost -= !fail_config[id];
        fail_config[id] = 1;
    }
}

// Puts intact buffers into the first k places, data into its own place, and names them in buf_ids;
// lost data buffers follow. Returns their number.
static int arrange(char *buffers, int ld, const int *fail_config, int *buf_ids, int k, int m)
{
    int lost = 0, spare = k, place;
    for (place = 0; place < k; place++) {
        buf_ids[place] = place;
        if (!fail_config[place])
            continue;
        while (spare < k + m && fail_config[spare])
            spare++;
        buf_ids[place] = spare;
        memcpy(buffers + (size_t)ld * place, buffers + (size_t)ld * spare, (size_t)ld);
        spare++;
        buf_ids[k + lost++] = place;
    }
    return lost;
}

static void run(int k, int m, int count)
{
    int fail_config[BUFFERS_MAX], buf_ids[BUFFERS_MAX];
    int bytes = count * (int)sizeof(int), ld, lost, place, number;
    gib_context gc;
    char *buffers, *original;

    check(gib_init(k, m, &gc), "gib_init");
    check(gib_alloc((void **)&buffers, bytes, &ld, gc), "gib_alloc");
    for (place = 0; place < k + m; place++)
        for (number = 0; number < ld; number++)
            buffers[(size_t)ld * place + number] = (char)draw(256);
    check(gib_generate(buffers, ld, gc), "gib_generate");

    original = malloc((size_t)ld * (k + m));
    if (!original)
        exit(2);
    memcpy(original, buffers, (size_t)ld * (k + m));
    fail(fail_config, k, m);
    for (place = 0; place < k + m; place++)
        if (fail_config[place])
            memset(buffers + (size_t)ld * place, 0xee, (size_t)ld);

    lost = arrange(buffers, ld, fail_config, buf_ids, k, m);
    check(gib_recover(buffers, ld, buf_ids, lost, gc), "gib_recover");
    for (place = 0; place < lost; place++)
        memcpy(buffers + (size_t)ld * buf_ids[k + place], buffers + (size_t)ld * (k + place),
               (size_t)ld);
    if (memcmp(buffers, original, (size_t)ld * k) != 0) {
        fprintf(stderr, "%d+%d, %d lost: other bytes\n", k, m, lost);
        exit(1);
    }
    free(original);
    check(gib_free(buffers, gc), "gib_free");
    check(gib_destroy(gc), "gib_destroy");
}

int main(int argc, char **argv)
{
    int round, rounds = argc > 2 ? atoi(argv[2]) : 1;
    state = 0x9e3779b97f4a7c15ULL ^ (argc > 1 ? strtoull(argv[1], NULL, 10) : 1);
    for (round = 0; round < rounds; round++) {
        int k = 1 + (int)draw(16), m = 1 + (int)draw(8);
        run(k, m, 1 + (int)draw(2000));
    }
    printf("%d stripes recovered\n", rounds);
    return 0;
}
