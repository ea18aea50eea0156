//! The body of a request.
//!
//! A large one is sent only after the server has said that it will read it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::header::{self, HeaderValue};
use hyper::{Request, StatusCode};
use tokio::sync::Notify;
use tokio::time::timeout;

/// Bodies of more bytes than this wait for the server's word.
const LARGE: usize = 256 << 10;
/// The longest wait for it.
const PATIENCE: Duration = Duration::from_secs(1);

/// A body.
pub(super) struct Upload {
    go_on: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    bytes: Bytes,
}

impl Upload {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self { go_on: None, bytes: bytes.into() }
    }

    /// Asks the server first whether it will read a large body (RFC 9110, section 10.1.1).
    ///
    /// A server that refuses one while it is sent would break the connection before its answer is read.
    pub(super) fn expect(request: &mut Request<Self>) {
        if request.body().bytes.len() <= LARGE {
            return;
        }
        request.headers_mut().insert(header::EXPECT, HeaderValue::from_static("100-continue"));
        let told = Arc::new(Notify::new());
        let tell = told.clone();
        hyper::ext::on_informational(request, move |response| {
            if response.status() == StatusCode::CONTINUE {
                tell.notify_one();
            }
        });
        request.body_mut().go_on = Some(Box::pin(async move {
            let _silent = timeout(PATIENCE, told.notified()).await;
        }));
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(go_on) = &mut self.go_on {
            ready!(go_on.as_mut().poll(context));
            self.go_on = None;
        }
        let bytes = std::mem::take(&mut self.bytes);
        Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
    }
    fn is_end_stream(&self) -> bool {
        self.bytes.is_empty()
    }
    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}
