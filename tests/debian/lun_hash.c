/* SPDX-License-Identifier: BSD-3-Clause */
/* lun_hash URL INITIATOR: logs in by libiscsi, reads the whole LUN by READ(10) and prints the
 * CRC-32 of its bytes. Debian's iscsi-* programs read no data that one could compare.
 */
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define BLOCKS_AT_ONCE 64

static uint32_t crc_add(uint32_t crc, const uint8_t *data, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		crc ^= data[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	return crc;
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: lun_hash URL INITIATOR\n");
		return 2;
	}
	struct iscsi_context *iscsi = iscsi_create_context(argv[2]);
	struct iscsi_url *url = iscsi ? iscsi_parse_full_url(iscsi, argv[1]) : NULL;
	if (!url)
		return fprintf(stderr, "url: %s\n", iscsi ? iscsi_get_error(iscsi) : "no memory"),
		       1;
	iscsi_set_session_type(iscsi, ISCSI_SESSION_NORMAL);
	iscsi_set_header_digest(iscsi, ISCSI_HEADER_DIGEST_NONE_CRC32C);
	if (iscsi_full_connect_sync(iscsi, url->portal, url->lun))
		return fprintf(stderr, "login: %s\n", iscsi_get_error(iscsi)), 1;
	struct scsi_task *task = iscsi_readcapacity10_sync(iscsi, url->lun, 0, 0);
	struct scsi_readcapacity10 *capacity = task ? scsi_datain_unmarshall(task) : NULL;
	if (!capacity || task->status != SCSI_STATUS_GOOD)
		return fprintf(stderr, "capacity: %s\n", iscsi_get_error(iscsi)), 1;
	uint32_t blocks = capacity->lba + 1, block = capacity->block_size, crc = ~0u;
	scsi_free_scsi_task(task);
	for (uint32_t at = 0; at < blocks; at += BLOCKS_AT_ONCE) {
		uint32_t n = blocks - at < BLOCKS_AT_ONCE ? blocks - at : BLOCKS_AT_ONCE;
		task = iscsi_read10_sync(iscsi, url->lun, at, n * block, (int)block, 0, 0, 0, 0, 0);
		if (!task || task->status != SCSI_STATUS_GOOD ||
			task->datain.size != (int)(n * block))
			return fprintf(stderr, "read at block %u: %s\n", at,
				       iscsi_get_error(iscsi)),
			       1;
		crc = crc_add(crc, task->datain.data, n * block);
		scsi_free_scsi_task(task);
	}
	printf("%u blocks of %u: %08x\n", blocks, block, ~crc);
	iscsi_logout_sync(iscsi);
	iscsi_destroy_url(url);
	iscsi_destroy_context(iscsi);
	return 0;
}
