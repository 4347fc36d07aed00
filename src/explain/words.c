/* SPDX-License-Identifier: BSD-3-Clause */
/* words.c - the sentences of the account: one for each concept, the first time that it appears.
 * Facts only; trace.c decides when. */
#include "explain/words.h"

/* In the order in which they are looked for: at most two are told after one line. A word is found
 * where no letter, digit or underscore stands beside it. */
const struct rpwi_explain_word rpwi_explain_words[] = {
	{"ibv_alloc_pd",
		"a protection domain (PD) groups QPs and memory regions: a QP can use only the "
		"memory of its own PD",
		"保护域（PD）把队列对（QP）和内存区域编成一组：QP 只能使用同一 PD 中的内存"},
	{"ibv_reg_mr",
		"registering memory gives two keys: the lkey is for our own work requests; the "
		"rkey gives a peer the access that the access flags allow",
		"注册内存得到两个密钥：lkey 供自己的工作请求使用；rkey 允许对端按访问标志读写"},
	{"ibv_create_cq",
		"a completion queue (CQ) collects the results of work requests; the program polls "
		"it, or waits on its channel",
		"完成队列（CQ）收集工作请求的结果；程序轮询它，或在其通道上等待"},
	{"ibv_create_qp",
		"a queue pair (QP) is one end of a connection: a send queue and a receive queue. "
		"It begins in RESET",
		"队列对（QP）是连接的一端：一个发送队列和一个接收队列。初始状态为 RESET"},
	{"ibv_create_qp_ex",
		"a queue pair (QP) is one end of a connection: a send queue and a receive queue. "
		"It begins in RESET",
		"队列对（QP）是连接的一端：一个发送队列和一个接收队列。初始状态为 RESET"},
	{"ibv_create_ah",
		"an address handle (AH) says where a datagram goes: UD has no connection, so each "
		"message names its destination",
		"地址句柄（AH）指明数据报的去向：UD 没有连接，每条消息都要指明目的地"},
	{"INIT",
		"INIT: receives can be posted now; nothing is sent, and packets that arrive are "
		"dropped",
		"INIT：可以投递接收请求，但还不收发任何数据包"},
	{"RTR", "RTR, ready to receive: the QP now knows its peer's address, QPN and first PSN",
		"RTR（可接收）：QP 已知道对端的地址、QPN 和起始 PSN"},
	{"RTS",
		"RTS, ready to send: the QP's own first PSN, time-out and retries are set; every "
		"operation works now",
		"RTS（可发送）：自己的起始 PSN、超时和重试次数已设定，QP 完全可用"},
	{"SQD", "SQD: the send queue is drained; no new work request starts",
		"SQD：发送队列排空，不再开始新的请求"},
	{"ERR",
		"ERR: nothing is sent or received any more; every work request still posted "
		"completes with 'flushed'",
		"ERR：不再收发；所有尚未完成的工作请求都以“已冲刷”（flushed）完成"},
	{"SQE",
		"SQE: a send failed on a QP without acknowledgements; the send queue waits to be "
		"revived",
		"SQE：无确认的 QP 上发送出错，发送队列等待恢复"},
	{"ibv_post_recv",
		"a receive says where the peer's next SEND is placed; post it before the SEND "
		"arrives",
		"接收请求指明对端下一个 SEND 的数据放在哪里；必须在 SEND 到达之前投递"},
	{"ibv_post_send",
		"a send work request is only queued here; its completion comes later, through the "
		"CQ",
		"发送工作请求在这里只是入队；完成结果稍后经由 CQ 返回"},
	{"RDMA_WRITE",
		"RDMA WRITE puts data into the peer's memory; the peer's program is neither "
		"involved nor notified",
		"RDMA WRITE 直接写入对端内存；对端程序不参与，也得不到通知"},
	{"RDMA_READ",
		"RDMA READ fetches data from the peer's memory; the peer's program is not involved",
		"RDMA READ 直接读取对端内存；对端程序不参与"},
	{"ATOMIC_CMP_AND_SWP",
		"an atomic changes 8 bytes of the peer's memory in one step, and brings the old "
		"value back",
		"原子操作一步修改对端内存中的 8 个字节，并取回旧值"},
	{"ATOMIC_FETCH_AND_ADD",
		"an atomic changes 8 bytes of the peer's memory in one step, and brings the old "
		"value back",
		"原子操作一步修改对端内存中的 8 个字节，并取回旧值"},
	{"ATOMIC_WRITE",
		"ATOMIC WRITE puts 8 bytes into the peer's memory in one step, after all earlier "
		"writes",
		"ATOMIC WRITE 一步写入对端内存的 8 个字节，并排在此前写入的全部数据之后"},
	{"the peer may",
		"rkey: the key that lets a peer access this memory; give it only to peers that you "
		"trust",
		"rkey：对端凭此密钥访问这块内存；只告诉允许访问的一方"},
	{"peer's",
		"rkey: the key with which the peer gave us access to its memory; a wrong one is "
		"answered with a NAK",
		"rkey：对端授予的内存访问密钥；用错会收到 NAK"},
	{"PSN",
		"PSN: the packet sequence number, by which the receiver detects missing and "
		"duplicate packets",
		"PSN：每个数据包都有序号；接收方据此发现丢失或重复"},
	{"SEND_ONLY",
		"SEND ONLY: a message of one packet; longer ones go as FIRST, MIDDLE..., LAST",
		"SEND ONLY：单个数据包的消息；更长的消息分为 FIRST、MIDDLE……、LAST"},
	{"WRITE_FIRST",
		"WRITE FIRST carries address, rkey and length of the whole write; MIDDLE and LAST "
		"carry only data",
		"WRITE FIRST 携带整个写操作的地址、rkey 和长度；MIDDLE 与 LAST 只有数据"},
	{"WRITE_ONLY", "WRITE ONLY: a write of one packet: address, rkey, length and the data",
		"WRITE ONLY：单个数据包的写操作，含地址、rkey、长度和数据"},
	{"READ_REQ", "a READ request carries no data; its responses do, with consecutive PSNs",
		"READ 请求不含数据；应答包携带数据，PSN 按其位置递增"},
	{"ACK",
		"ACK: everything up to this PSN has arrived; now the sender's work request "
		"completes",
		"ACK：到此 PSN 为止的都已收到；发送方的工作请求随之完成"},
	{"NAK",
		"NAK: the receiver refuses or misses something, and says why; after 'PSN sequence "
		"error' the sender goes back to that PSN",
		"NAK：接收方拒绝或缺少某个包，并说明原因；“PSN 序号错误”时发送方退回到该 PSN 重发"},
	{"RNR",
		"RNR, receiver not ready: a SEND came and no receive was posted; the sender waits "
		"as long as the NAK says, and tries again",
		"RNR（接收方未就绪）：SEND 到达时没有投递接收请求；发送方按 NAK "
		"指定的时间等待后重试"},
	{"again",
		"sent again: it was lost, or its acknowledgement was, or it came before a gap was "
		"filled",
		"重发：该包丢失，或其确认丢失，或它先于缺口之前的包到达"},
	{"wr_id",
		"wr_id: the program's own number for this work request; its completion brings the "
		"number back",
		"wr_id：程序为该工作请求自定的编号；完成时原样带回"},
	{"ibv_poll_cq", "a completion: the CQ reports how the work request with this wr_id ended",
		"完成：CQ 报告带有此 wr_id 的工作请求的结果"},
	{"flushed",
		"flushed (status 5): the QP went to ERR with this work request still waiting; no "
		"data was moved for it",
		"已冲刷（状态 5）：QP 进入 ERR 时该工作请求仍在等待；它没有传输任何数据"},
	{"rdma_resolve_addr",
		"address resolution: the route to the peer decides which device and which GID are "
		"used",
		"地址解析：到对端的路由决定使用哪个设备和哪个 GID"},
	{"rdma_resolve_route",
		"route resolution: on Ethernet there is no one to ask; the path follows from the "
		"addresses",
		"路由解析：以太网上无需询问，路径由地址得出"},
	{"rdma_listen",
		"listening: REQs for this service ID (the port number and its port space) now come "
		"to this program",
		"监听：发往此服务 ID（端口空间加端口号）的 REQ 将交给本程序"},
	{"ConnectRequest",
		"REQ, connect request: asks for a connection; it carries our QPN, the PSN with "
		"which the peer must begin, retry counts and private data",
		"REQ（连接请求）：请求建立连接；告知本端 QPN、对端应使用的起始 "
		"PSN、重试次数和私有数据"},
	{"ConnectReply",
		"REP, connect reply: the server accepts; it carries the server's QPN and the PSN "
		"with which the client must begin",
		"REP（连接应答）：服务器接受，并告知自己的 QPN 和客户端应使用的起始 PSN"},
	{"ReadyToUse",
		"RTU, ready to use: the client confirms; when it comes, the server's connection is "
		"established",
		"RTU（可用）：客户端确认；到达后服务器一侧的连接即建立"},
	{"ConnectReject", "REJ, connect reject: the request is refused, with a reason",
		"REJ（拒绝连接）：请求被拒绝，并说明原因"},
	{"MsgRcptAck", "MRA: 'I have your message, and need more time than you expect'",
		"MRA：“消息已收到，但需要更多时间”"},
	{"DisconnectRequest",
		"DREQ, disconnect request: this side is finished; both QPs go to ERR and flush "
		"what is still posted",
		"DREQ（断开请求）：一方已结束；两端 QP 都进入 ERR，冲刷尚未完成的请求"},
	{"DisconnectReply",
		"DREP answers DREQ. For a while (TIMEWAIT) the QPN is not reused, so that late "
		"packets reach no one",
		"DREP 应答 DREQ。此后一段时间（TIMEWAIT）内不再使用该 QPN，以免迟到的包误入"},
	{"ServiceIDReq",
		"SIDR: a look-up of the QPN and Q_Key behind a port, for datagrams (UD); no "
		"connection is made",
		"SIDR：为数据报（UD）查询端口对应的 QPN 和 Q_Key；不建立连接"},
	{"ESTABLISHED",
		"ESTABLISHED: both sides have agreed; from now on data may flow in both directions",
		"ESTABLISHED：双方已达成一致，数据可以双向流动"},
	{"TIMEWAIT",
		"TIMEWAIT: the connection is over; its numbers rest until no late packet can come",
		"TIMEWAIT：连接已结束；其编号暂不使用，直到不会再有迟到的包"},
	{"lost on purpose",
		"ROPEWAY_FAULT decides which packets are lost on purpose; the wire never sees this "
		"one",
		"ROPEWAY_FAULT 决定故意丢弃哪些包；此包不会出现在线路上"},
};
const unsigned rpwi_explain_word_count = RPWI_ARRAY_LEN(rpwi_explain_words);
