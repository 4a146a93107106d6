// Reed-Solomon on buffers anywhere in memory: random codes, losses and orders of ids.
//
//   reed_solomon SEED ROUNDS

#include <recoded.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUFFERS_MAX 40

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
    if (code != RECODED_OK) {
        fprintf(stderr, "%s: %d: %s\n", call, code, recoded_error_text(code));
        exit(1);
    }
}

static void run(size_t data, size_t parity, size_t bytes)
{
    uint8_t *buffers[BUFFERS_MAX], *lost[BUFFERS_MAX];
    const uint8_t *intact[BUFFERS_MAX];
    size_t ids[BUFFERS_MAX], index, number;
    recoded_reed_solomon *code;

    check(recoded_reed_solomon_new(data, parity, &code), "new");
    for (index = 0; index < data + parity; index++) {
        buffers[index] = malloc(bytes);
        lost[index] = malloc(bytes);
        if (!buffers[index] || !lost[index])
            exit(2);
        ids[index] = index;
        for (number = 0; index < data && number < bytes; number++)
            buffers[index][number] = (uint8_t)draw(256);
    }
    check(recoded_reed_solomon_encode(code, (const uint8_t *const *)buffers, buffers + data, bytes),
          "encode");
    for (index = data + parity - 1; index > 0; index--) {
        size_t other = draw((unsigned)index + 1), id = ids[index];
        ids[index] = ids[other];
        ids[other] = id;
    }
    for (index = 0; index < data; index++)
        intact[index] = buffers[ids[index]];
    check(recoded_reed_solomon_recover(code, ids, intact, lost, parity, bytes), "recover");
    for (index = 0; index < parity; index++) {
        if (memcmp(lost[index], buffers[ids[data + index]], bytes) != 0) {
            fprintf(stderr, "%zu+%zu: other bytes\n", data, parity);
            exit(1);
        }
    }
    for (index = 0; index < data + parity; index++) {
        free(buffers[index]);
        free(lost[index]);
    }
    recoded_reed_solomon_free(code);
}

int main(int argc, char **argv)
{
    int round, rounds = argc > 2 ? atoi(argv[2]) : 1;
    state = 0x9e3779b97f4a7c15ULL ^ (argc > 1 ? strtoull(argv[1], NULL, 10) : 1);
    for (round = 0; round < rounds; round++)
        run(1 + draw(20), 1 + draw(20), 1 + draw(3000));
    printf("%d stripes recovered\n", rounds);
    return 0;
}
