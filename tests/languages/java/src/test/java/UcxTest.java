// SPDX-License-Identifier: BSD-3-Clause
import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;

import java.nio.ByteBuffer;
import java.util.Random;
import org.junit.After;
import org.junit.Before;
import org.junit.Test;
import org.openucx.jucx.UcxCallback;
import org.openucx.jucx.UcxUtils;
import org.openucx.jucx.ucp.UcpContext;
import org.openucx.jucx.ucp.UcpEndpoint;
import org.openucx.jucx.ucp.UcpEndpointParams;
import org.openucx.jucx.ucp.UcpMemory;
import org.openucx.jucx.ucp.UcpParams;
import org.openucx.jucx.ucp.UcpRemoteKey;
import org.openucx.jucx.ucp.UcpRequest;
import org.openucx.jucx.ucp.UcpWorker;
import org.openucx.jucx.ucp.UcpWorkerParams;

/**
 * Two workers of one process, each with a context of its own. UCX has one transport, that of -Dtls (rc_v, ud_v),
 * so what arrives has been through the RDMA device. Each byte is compared.
 */
public class UcxTest {
  private static final int[] SIZES = {1, 8, 1000, 8192, 65536, 1 << 20, 4 << 20};
  private static final long LIMIT_NS = 30_000_000_000L;
  private static final int TRUNCATED = -9; // UCS_ERR_MESSAGE_TRUNCATED

  private static final class Side {
    final UcpContext context;
    final UcpWorker worker;
    UcpEndpoint endpoint;

    Side() {
      context = new UcpContext(new UcpParams().setConfig("TLS", System.getProperty("tls")).requestTagFeature()
          .requestRmaFeature().requestStreamFeature().requestAmFeature());
      worker = context.newWorker(new UcpWorkerParams());
    }
  }

  /** 0, or the status of the last request that failed. */
  private static final class Result extends UcxCallback {
    int status;

    @Override
    public void onError(int code, String text) {
      status = code;
    }
  }

  private Side a;
  private Side b;

  @Before
  public void connect() {
    a = new Side();
    b = new Side();
    a.endpoint = a.worker.newEndpoint(new UcpEndpointParams().setUcpAddress(b.worker.getAddress()));
    b.endpoint = b.worker.newEndpoint(new UcpEndpointParams().setUcpAddress(a.worker.getAddress()));
  }

  @After
  public void close() throws Exception {
    UcpRequest one = a.endpoint.closeNonBlockingFlush();
    UcpRequest other = b.endpoint.closeNonBlockingFlush();
    done(new Result(), one, other);
    for (Side side : new Side[] {a, b}) {
      side.worker.close();
      side.context.close();
    }
  }

  private void done(Result result, UcpRequest... requests) throws Exception {
    await(requests);
    assertEquals(0, result.status);
  }

  private void await(UcpRequest... requests) throws Exception {
    long end = System.nanoTime() + LIMIT_NS;
    for (UcpRequest request : requests) {
      while (!request.isCompleted()) {
        a.worker.progress();
        b.worker.progress();
        assertFalse("not done in time", System.nanoTime() > end);
      }
    }
  }

  private static ByteBuffer filled(int size) {
    byte[] bytes = new byte[size];
    new Random(size).nextBytes(bytes);
    ByteBuffer buffer = ByteBuffer.allocateDirect(size);
    buffer.put(bytes);
    buffer.clear();
    return buffer;
  }

  private static void same(ByteBuffer sent, ByteBuffer received) {
    byte[] left = new byte[sent.capacity()];
    byte[] right = new byte[received.capacity()];
    sent.clear();
    received.clear();
    sent.get(left);
    received.get(right);
    sent.clear(); // an address counts from the position
    received.clear();
    assertArrayEquals(left, right);
  }

  @Test
  public void taggedMessages() throws Exception {
    for (int size : SIZES) {
      ByteBuffer sent = filled(size);
      ByteBuffer received = ByteBuffer.allocateDirect(size);
      Result result = new Result();
      UcpRequest receive = b.worker.recvTaggedNonBlocking(received, size, -1L, result);
      UcpRequest send = a.endpoint.sendTaggedNonBlocking(sent, size, result);
      done(result, send, receive);
      assertEquals(size, receive.getRecvSize());
      same(sent, received);
    }
  }

  @Test
  public void streams() throws Exception {
    for (int size : SIZES) {
      ByteBuffer sent = filled(size);
      ByteBuffer received = ByteBuffer.allocateDirect(size);
      Result result = new Result();
      UcpRequest receive = a.endpoint.recvStreamNonBlocking(received, 1L, result); // 1: all of it
      UcpRequest send = b.endpoint.sendStreamNonBlocking(sent, result);
      done(result, send, receive);
      same(sent, received);
    }
  }

  @Test
  public void putAndGet() throws Exception {
    for (int size : SIZES) {
      ByteBuffer ours = filled(size);
      ByteBuffer theirs = ByteBuffer.allocateDirect(size);
      ByteBuffer back = ByteBuffer.allocateDirect(size);
      UcpMemory local = a.context.registerMemory(ours);
      UcpMemory remote = b.context.registerMemory(theirs);
      UcpRemoteKey key = a.endpoint.unpackRemoteKey(remote.getRemoteKeyBuffer());
      Result result = new Result();
      UcpRequest put = a.endpoint.putNonBlocking(ours, UcxUtils.getAddress(theirs), key, result);
      done(result, put, a.endpoint.flushNonBlocking(result));
      same(ours, theirs);
      done(result, a.endpoint.getNonBlocking(UcxUtils.getAddress(theirs), key, back, result));
      same(theirs, back);
      key.close();
      local.deregister();
      remote.deregister();
    }
  }

  @Test
  public void aReceiveThatIsTooShortFails() throws Exception {
    ByteBuffer sent = filled(1000);
    Result result = new Result();
    UcpRequest receive = b.worker.recvTaggedNonBlocking(ByteBuffer.allocateDirect(10), 7, -1L, result);
    UcpRequest send = a.endpoint.sendTaggedNonBlocking(sent, 7, new Result());
    await(send, receive);
    assertEquals(TRUNCATED, result.status);
  }
}
