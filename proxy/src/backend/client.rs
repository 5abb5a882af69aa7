//! Connections to backends: the one place that opens any.
//!
//! HTTP/1.1, one connection a request. Engines close idle sockets after a few seconds (uvicorn: 5), and a request that
//! meets a dying socket cannot be told from a dying backend; on loopback or a LAN a connect costs far less than that doubt.
//! The connection is driven inside the reply that it carries, so dropping the reply closes the socket at once, in every
//! stage: that is how a client's disconnect reaches the engine.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::uri::Authority;
use http::{Request, response};
use http_body::{Body as _, Frame};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Connection};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A byte stream to a backend.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A pending connection.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Io>>> + Send>>;

/// Opens byte streams: TCP in the product, in-memory pipes in tests that run on paused time.
pub trait Connect: Send + Sync + std::fmt::Debug {
    /// Starts to connect.
    fn connect(&self, to: &Authority) -> Connecting;
}

/// TCP without Nagle's delay.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tcp;

impl Connect for Tcp {
    fn connect(&self, to: &Authority) -> Connecting {
        let host = to.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = to.port_u16().unwrap_or(80);
        Box::pin(async move {
            let stream = TcpStream::connect((host, port)).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Io>)
        })
    }
}

/// Why there is no reply.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// Nobody listens, or not in time.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// The connection ended before a head came.
    #[error("connection lost: {0}")]
    Lost(hyper::Error),
}

/// A reply: its head, and its body with the connection that carries it.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) head: response::Parts,
    pub(crate) body: ReplyBody,
}

type Conn = Connection<TokioIo<Box<dyn Io>>, Full<Bytes>>;

/// The body of a reply. It drives its connection; dropping it closes the connection.
pub(crate) struct ReplyBody {
    connection: Option<Pin<Box<Conn>>>,
    incoming: Incoming,
}

impl std::fmt::Debug for ReplyBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplyBody").field("connected", &self.connection.is_some()).finish_non_exhaustive()
    }
}

/// Sends one request over a fresh connection and waits for the head of the reply. The request's URI is a path.
pub(crate) async fn send(
    connector: &dyn Connect,
    to: &Authority,
    connect_within: Duration,
    request: Request<Full<Bytes>>,
) -> Result<Reply, ClientError> {
    let connecting = tokio::time::timeout(connect_within, connector.connect(to));
    let io = match connecting.await {
        Ok(io) => io.map_err(ClientError::Connect)?,
        Err(_) => return Err(ClientError::Connect(io::ErrorKind::TimedOut.into())),
    };
    let (mut sender, connection) = http1::Builder::new()
        .max_headers(256)
        .handshake(TokioIo::new(io))
        .await
        .map_err(ClientError::Lost)?;
    let mut connection = Box::pin(connection);
    let mut sending = std::pin::pin!(sender.send_request(request));
    let mut open = true;
    let response = std::future::poll_fn(|cx| {
        if open && connection.as_mut().poll(cx).is_ready() {
            open = false;
        }
        sending.as_mut().poll(cx)
    })
    .await
    .map_err(ClientError::Lost)?;
    let (head, incoming) = response.into_parts();
    Ok(Reply { head, body: ReplyBody { connection: open.then_some(connection), incoming } })
}

/// Whether anybody accepts connections there.
pub(crate) async fn listens(connector: &dyn Connect, at: &Authority, within: Duration) -> bool {
    matches!(tokio::time::timeout(within, connector.connect(at)).await, Ok(Ok(_)))
}

impl ReplyBody {
    /// The next bytes; `None` at the proper end of the body.
    pub(crate) async fn next(&mut self) -> Option<Result<Bytes, hyper::Error>> {
        loop {
            let frame = std::future::poll_fn(|cx| Pin::new(&mut *self).poll_frame(cx)).await?;
            match frame {
                Ok(frame) => {
                    if let Ok(data) = frame.into_data()
                        && !data.is_empty()
                    {
                        return Some(Ok(data));
                    }
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl http_body::Body for ReplyBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Some(connection) = &mut self.connection
            && connection.as_mut().poll(cx).is_ready()
        {
            self.connection = None;
        }
        Pin::new(&mut self.incoming).poll_frame(cx)
    }
}
