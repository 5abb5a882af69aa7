//! Notices that a client has hung up while its request is being answered, whatever it sent before.
//!
//! An HTTP server stops to read once it has a request, if anything follows it (a stray line end, a pipelined request), and
//! then cannot see the end of the connection: the backend would go on for nobody. So what arrives meanwhile is read
//! ahead here, up to a limit, and handed over when the server wants it. Reader and watcher are polled by one task.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf as _, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, ReadHalf, WriteHalf};

use crate::backend::client::Io;

/// What may wait unread: a pipelined request or two. Beyond that nobody looks, and back-pressure is the socket's.
const AHEAD: usize = 64 << 10;

/// A client's byte stream.
pub(crate) struct ClientIo<T> {
    read: Arc<Mutex<Ahead<T>>>,
    write: WriteHalf<T>,
}

/// Watches the same stream for its end.
pub(crate) struct Watch<T>(Arc<Mutex<Ahead<T>>>);

struct Ahead<T> {
    io: ReadHalf<T>,
    bytes: BytesMut,
    ended: bool,
}

/// A stream, and what watches it.
pub(crate) fn watched<T: Io>(io: T) -> (ClientIo<T>, Watch<T>) {
    let (read, write) = tokio::io::split(io);
    let read = Arc::new(Mutex::new(Ahead { io: read, bytes: BytesMut::new(), ended: false }));
    (ClientIo { read: read.clone(), write }, Watch(read))
}

impl<T: Io> Watch<T> {
    /// Resolves when the client has closed its side, or the stream has failed.
    pub(crate) async fn hung_up(&self) {
        std::future::poll_fn(|cx| self.poll(cx)).await;
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut ahead = self.0.lock();
        let mut piece = [0; 4096];
        while !ahead.ended {
            if ahead.bytes.len() >= AHEAD {
                return Poll::Pending;
            }
            let mut buffer = ReadBuf::new(&mut piece);
            match Pin::new(&mut ahead.io).poll_read(cx, &mut buffer) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    ahead.bytes.extend_from_slice(buffer.filled());
                    // The server may have been waiting for just that.
                    cx.waker().wake_by_ref();
                }
                Poll::Ready(_) => ahead.ended = true,
            }
        }
        Poll::Ready(())
    }
}

impl<T: Io> AsyncRead for ClientIo<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut ahead = self.read.lock();
        if !ahead.bytes.is_empty() {
            let length = ahead.bytes.len().min(buffer.remaining());
            buffer.put_slice(&ahead.bytes[..length]);
            ahead.bytes.advance(length);
            return Poll::Ready(Ok(()));
        }
        if ahead.ended {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut ahead.io).poll_read(cx, buffer)
    }
}

impl<T: Io> AsyncWrite for ClientIo<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.write).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.write).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.write.is_write_vectored()
    }
}
