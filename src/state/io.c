/* SPDX-License-Identifier: MIT */
/* io: see io.h. */
#include "state/io.h"

#include <inttypes.h>

int kvl_state_io_init(kvl_state_io *io, kvlazy_cache *c, const kvl_state_ends *ends)
{
    *io = (kvl_state_io){
        .cache = c, .ends = ends, .sum = kvl_checksum_new(), .buffer = malloc(KVL_ROWS_PIECE_BYTES + sizeof(uint64_t))};
    return io->sum && io->buffer ? KVLAZY_OK : KVLAZY_ENOMEM;
}

void kvl_state_io_fini(kvl_state_io *io)
{
    kvl_checksum_free(io->sum);
    free(io->buffer);
}

/* ------------------------------------------------------------------------------------------- what is wrong */

int kvl_state_refuse(kvl_state_io *io, kvl_state_fault fault)
{
    if (!fault.what)
        return KVLAZY_OK;
    if (!io->fault.what)
        io->fault = fault;
    return KVLAZY_ESTATE;
}

static void name_of(uint32_t name, char text[5])
{
    for (int i = 0; i < 4; i++)
        text[i] = (char)(name >> 8 * i & 0x7f);
    text[4] = 0;
}

int kvl_state_say(kvl_state_io *io, const char *call, int status)
{
    char section[5];

    name_of(io->name, section);
    if (status == KVLAZY_ESTATE && io->fault.what)
        kvl_log_note(&io->cache->log, KVLAZY_LOG_ERROR,
                     "%s: %s %" PRIu64 ", here %" PRIu64 "; section %" PRIu32 " %s, byte %" PRIu64, call,
                     io->fault.what, io->fault.theirs, io->fault.ours, io->number, section, io->n_passed);
    else if (status)
        kvl_log_note(&io->cache->log, status == KVLAZY_EIO ? KVLAZY_LOG_ERROR : KVLAZY_LOG_INFO,
                     "%s: %s; section %" PRIu32 " %s, byte %" PRIu64, call, kvlazy_status_message(status), io->number,
                     section, io->n_passed);
    return status;
}

/* ------------------------------------------------------------------------------------------- bytes */

int kvl_state_pass_raw(kvl_state_io *io, void *data, size_t bytes)
{
    int status = bytes ? io->ends->pass(io->ends->ctx, data, bytes) : KVLAZY_OK;

    if (status == KVLAZY_ESTATE)
        return kvl_state_refuse(io, (kvl_state_fault){"end of the state at byte", io->n_passed, io->n_passed + bytes});
    io->n_passed += status ? 0 : bytes;
    return status;
}

/* The checksum is made of them afterwards, since bytes that are read are not there before. */
int kvl_state_pass_bytes(kvl_state_io *io, void *data, size_t bytes)
{
    int status = kvl_state_pass_raw(io, data, bytes);

    if (!status)
        kvl_checksum_add(io->sum, data, bytes);
    return status;
}

/* ------------------------------------------------------------------------------------------- sections */

int kvl_state_put_frame(kvl_state_io *io, uint32_t name, uint64_t bytes)
{
    kvl_state_frame frame = {name, io->number, bytes};

    io->name = name;
    kvl_checksum_begin(io->sum);
    return kvl_state_pass_bytes(io, &frame, sizeof frame);
}

int kvl_state_put_checksum(kvl_state_io *io)
{
    uint64_t checksum = kvl_checksum_end(io->sum);

    io->number++;
    return kvl_state_pass_raw(io, &checksum, sizeof checksum);
}

int kvl_state_get_frame(kvl_state_io *io, uint32_t name, uint64_t bytes)
{
    kvl_state_frame frame = {0};

    io->name = name;
    kvl_checksum_begin(io->sum);
    int status = kvl_state_pass_bytes(io, &frame, sizeof frame);
    return status ? status : kvl_state_refuse(io, kvl_state_check_frame(&frame, name, io->number, bytes));
}

int kvl_state_get_checksum(kvl_state_io *io)
{
    uint64_t checksum = 0, is = kvl_checksum_end(io->sum);

    int status = kvl_state_pass_raw(io, &checksum, sizeof checksum);
    if (!status && checksum != is)
        status = kvl_state_refuse(io, (kvl_state_fault){"checksum of a section", checksum, is});
    io->number += !status;
    return status;
}
