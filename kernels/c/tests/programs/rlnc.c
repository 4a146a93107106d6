// A generation over a lossy line: source, two relays that recode, and a sink that delivers symbols
// as soon as packets determine them.
//
//   rlnc SEED ROUNDS

#include <recoded.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RELAYS 2

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

static void fault(const char *text)
{
    fprintf(stderr, "%s\n", text);
    exit(1);
}

// Sends until the sink has everything. Each link loses a quarter of its packets.
static void run(size_t size, size_t bytes)
{
    uint8_t *data = malloc(size * bytes), *decoded = malloc(size * bytes);
    uint8_t *vector = malloc(size), *symbol = malloc(bytes);
    recoded_rlnc_encoder *encoder;
    recoded_rlnc_recoder *relays[RELAYS];
    recoded_rlnc_decoder *decoder;
    size_t index, delivered = 0;
    int relay, code;

    if (!data || !decoded || !vector || !symbol)
        exit(2);
    for (index = 0; index < size * bytes; index++)
        data[index] = (uint8_t)draw(256);
    check(recoded_rlnc_encoder_new(size, bytes, draw(1u << 30), &encoder), "encoder_new");
    for (relay = 0; relay < RELAYS; relay++)
        check(recoded_rlnc_recoder_new(size, bytes, draw(1u << 30), &relays[relay]), "recoder_new");
    check(recoded_rlnc_decoder_new(size, bytes, &decoder), "decoder_new");
    for (index = 0; index < size; index++)
        check(recoded_rlnc_encoder_add(encoder, data + index * bytes, bytes), "encoder_add");
    if (recoded_rlnc_encoder_add(encoder, data, bytes) != RECODED_FULL)
        fault("one symbol more");

    while (recoded_rlnc_decoder_rank(decoder) < size) {
        bool is_innovative = false;
        check(recoded_rlnc_encoder_take(encoder, vector, size, symbol, bytes), "encoder_take");
        for (relay = 0; relay < RELAYS; relay++) {
            recoded_rlnc_recoder *at = relays[relay];
            if (draw(4) > 0)
                check(recoded_rlnc_recoder_add(at, vector, size, symbol, bytes, NULL), "recoder_add");
            if (recoded_rlnc_recoder_rank(at) == 0)
                break;
            check(recoded_rlnc_recoder_take(at, vector, size, symbol, bytes), "recoder_take");
        }
        if (relay < RELAYS || draw(4) == 0)
            continue;
        check(recoded_rlnc_decoder_add(decoder, vector, size, symbol, bytes, &is_innovative),
              "decoder_add");
        while ((code = recoded_rlnc_decoder_next(decoder, &index, symbol, bytes)) == RECODED_OK) {
            if (memcmp(symbol, data + index * bytes, bytes) != 0)
                fault("another symbol");
            delivered++;
        }
        if (code != RECODED_NOT_DECODED)
            check(code, "decoder_next");
    }
    check(recoded_rlnc_decoder_decode(decoder, decoded, size * bytes), "decoder_decode");
    if (delivered != size || memcmp(decoded, data, size * bytes) != 0)
        fault("other data");

    recoded_rlnc_decoder_free(decoder);
    for (relay = 0; relay < RELAYS; relay++)
        recoded_rlnc_recoder_free(relays[relay]);
    recoded_rlnc_encoder_free(encoder);
    free(data);
    free(decoded);
    free(vector);
    free(symbol);
}

int main(int argc, char **argv)
{
    int round, rounds = argc > 2 ? atoi(argv[2]) : 1;
    state = 0x9e3779b97f4a7c15ULL ^ (argc > 1 ? strtoull(argv[1], NULL, 10) : 1);
    if (recoded_abi_version() != RECODED_ABI_VERSION)
        fault("a library of another version");
    for (round = 0; round < rounds; round++)
        run(1 + draw(40), 1 + draw(1500));
    printf("%d generations delivered\n", rounds);
    return 0;
}
