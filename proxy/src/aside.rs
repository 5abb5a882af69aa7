//! Reading a whole long body without keeping the thread that forwards streams.
//!
//! A look through ten megabytes takes tens of milliseconds, and every stream of the same thread would stand still for it. A short body is
//! read at once, since a thread of its own costs more than that.

use std::sync::Arc;

use switchback_parsers::request::ChatRequest;

/// Bodies from here on, in bytes, are long: what reads them takes a millisecond or more.
pub(crate) const LONG: usize = 256 << 10;

/// What `read` finds in a request; on a thread that may block if the request is long.
pub(crate) async fn aside<T: Send + 'static>(
    request: &Arc<ChatRequest>,
    read: impl Fn(&ChatRequest) -> T + Clone + Send + 'static,
) -> T {
    if request.body().len() < LONG {
        return read(request);
    }
    let (there, reading) = (request.clone(), read.clone());
    match tokio::task::spawn_blocking(move || reading(&there)).await {
        Ok(found) => found,
        // The process is being stopped.
        Err(_) => read(request),
    }
}
