//! Port-forward over SPDY: for each connection to the pod the client opens an error stream and a data stream
//! with the same request id and port. Any number of such connections share the client's SPDY connection. A
//! [`Forward`] reaches the port.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::channels::Forward;
use crate::disconnect::DisconnectWatch;
use crate::spdy::SpdyError;
use crate::spdy::frame::{CANCEL, Frame, REFUSED_STREAM};
use crate::spdy::headers::Headers;
use crate::spdy::reader::{Event, Reader};
use crate::spdy::writer::{Closed, Writer};
use crate::status;

/// Time limit for the second stream of a pair.
const PAIR_TIMEOUT: Duration = Duration::from_secs(30);

/// Connections of one client at a time, half-made ones included.
const CONNECTIONS_MAX: usize = 512;

/// Bytes on their way to the pod for each connection. If a pod does not take them, its client's other
/// connections wait too: the protocol cannot hold back a single stream.
pub(crate) const CONNECTION_BYTES: usize = 256 * 1024;

/// How long a client may still send after the pod's end. Clients answer the end by a reset, or leave the end
/// of their own side out. containerd gives them as long.
const AFTER_POD_END: Duration = Duration::from_secs(1);

/// Longest piece sent at once, in bytes.
const CHUNK_BYTES: usize = 16 * 1024;

/// Serves the client until it closes. This ends all its connections.
pub(crate) async fn serve<S>(
    io: S,
    forward: Arc<dyn Forward>,
    disconnect: DisconnectWatch,
) -> Result<(), SpdyError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (read, write) = tokio::io::split(io);
    let (writer, writing) = Writer::start(write, None)?;
    let client =
        Client { writer, forward, pairs: HashMap::new(), inputs: HashMap::new(), running: JoinSet::new() };
    let outcome = tokio::select! {
        outcome = client.run(Reader::new(read)) => outcome,
        // While a pod takes nothing, nothing more is read, so a read cannot show that the client has gone.
        () = disconnect.wait() => Ok(()),
    };
    writing.abort();
    outcome
}

/// A pair still missing its second stream.
struct IncompletePair {
    error: Option<u32>,
    data: Option<u32>,
    port: u16,
    /// Arrival time of the pair's first stream.
    since: Instant,
}

struct Client {
    writer: Writer,
    forward: Arc<dyn Forward>,
    /// Incomplete pairs by request id.
    pairs: HashMap<String, IncompletePair>,
    /// The connections' inputs by the number of the data stream.
    inputs: HashMap<u32, Input>,
    /// The connections' tasks. Each returns the number of its data stream.
    running: JoinSet<u32>,
}

/// The client's side of a connection. Dropping it breaks the connection off.
struct Input {
    to_pod: WriteHalf<DuplexStream>,
    _reset: oneshot::Sender<()>,
}

impl Client {
    async fn run<R: AsyncRead + Unpin>(mut self, mut reader: Reader<R>) -> Result<(), SpdyError> {
        while let Some(event) = reader.next().await? {
            while let Some(ended) = self.running.try_join_next() {
                self.inputs.remove(&ended.unwrap_or_default());
            }
            let taken = match event {
                Event::Opened { id, headers, .. } => self.opened(id, &headers).await,
                Event::Data { id, bytes, fin } => {
                    self.data(id, &bytes, fin).await;
                    Ok(())
                }
                Event::Reset { id } => {
                    self.inputs.remove(&id);
                    Ok(())
                }
                Event::Ping(number) if !number.is_multiple_of(2) => {
                    self.writer.send(Frame::Ping(number)).await
                }
                Event::Ping(_) | Event::Replied(_) => Ok(()),
            };
            taken.map_err(|Closed| std::io::Error::from(std::io::ErrorKind::BrokenPipe))?;
        }
        Ok(())
    }

    async fn opened(&mut self, id: u32, headers: &Headers) -> Result<(), Closed> {
        self.drop_late_pairs().await?;
        let find =
            |wanted: &str| headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
        let port = find("port").and_then(|port| port.parse::<u16>().ok()).filter(|port| *port > 0);
        let error = match find("streamtype") {
            Some("error") => true,
            Some("data") => false,
            _ => return self.refuse(id).await,
        };
        let Some(port) = port else { return self.refuse(id).await };
        // Older clients leave the request id out. They open the error stream first, and the data stream next.
        let number = if error { id } else { id.saturating_sub(2) };
        let request = find("requestid").map_or_else(|| number.to_string(), str::to_owned);
        if !self.pairs.contains_key(&request) && self.pairs.len() + self.running.len() >= CONNECTIONS_MAX {
            return self.refuse(id).await;
        }
        let new = || IncompletePair { error: None, data: None, port, since: Instant::now() };
        let pair = self.pairs.entry(request.clone()).or_insert_with(new);
        let place = if error { &mut pair.error } else { &mut pair.data };
        if pair.port != port || place.is_some() {
            return self.refuse(id).await;
        }
        *place = Some(id);
        let complete = pair.error.zip(pair.data);
        self.writer.reply(id).await?;
        if let Some((error, data)) = complete {
            self.pairs.remove(&request);
            self.connect(error, data, port);
        }
        Ok(())
    }

    fn connect(&mut self, error: u32, data: u32, port: u16) {
        let (near, far) = tokio::io::duplex(CONNECTION_BYTES);
        let (from_pod, to_pod) = tokio::io::split(near);
        let (writer, forward) = (self.writer.clone(), Arc::clone(&self.forward));
        let (reset, broken_off) = oneshot::channel();
        self.running.spawn(async move {
            let pair = Pair { error, data, port };
            let send = |bytes, fin| writer.data(data, bytes, fin);
            let outcome = tokio::select! {
                outcome = carry(&*forward, port, from_pod, far, send) => outcome,
                // The client waits for the end of the error stream, before it closes its own connection.
                _ = broken_off => Ok(Ok(())),
            };
            // The only failure is a lost client.
            if let Ok(outcome) = outcome {
                let _ = end(&writer, &pair, outcome).await;
            }
            data
        });
        self.inputs.insert(data, Input { to_pod, _reset: reset });
    }

    async fn data(&mut self, id: u32, bytes: &Bytes, fin: bool) {
        // Bytes of other streams, or of an ended connection, are dropped.
        let Some(Input { to_pod, .. }) = self.inputs.get_mut(&id) else { return };
        let gone = !bytes.is_empty() && to_pod.write_all(bytes).await.is_err();
        if fin && !gone {
            // The entry stays: a reset may follow.
            let _ = to_pod.shutdown().await;
        }
    }

    async fn refuse(&self, id: u32) -> Result<(), Closed> {
        self.writer.send(Frame::Reset { id, status: REFUSED_STREAM }).await
    }

    async fn drop_late_pairs(&mut self) -> Result<(), Closed> {
        let late: Vec<_> = self.pairs.extract_if(|_, pair| pair.since.elapsed() > PAIR_TIMEOUT).collect();
        for id in late.into_iter().flat_map(|(_, pair)| [pair.error, pair.data]).flatten() {
            self.writer.send(Frame::Reset { id, status: CANCEL }).await?;
        }
        Ok(())
    }
}

/// The numbers of one connection's streams, and its port.
struct Pair {
    error: u32,
    data: u32,
    port: u16,
}

/// Carries a connection's bytes until both ways have ended. `send` sends bytes of the pod to the client, and
/// with `true` their end. Returns the error of the connection to the pod.
pub(crate) async fn carry<F>(
    forward: &dyn Forward,
    port: u16,
    mut from_pod: ReadHalf<DuplexStream>,
    far: DuplexStream,
    send: impl Fn(Bytes, bool) -> F,
) -> Result<Result<(), String>, Closed>
where
    F: Future<Output = Result<(), Closed>>,
{
    let returning = async {
        let mut chunk = vec![0; CHUNK_BYTES];
        while let Ok(count @ 1..) = from_pod.read(&mut chunk).await {
            send(Bytes::copy_from_slice(&chunk[..count]), false).await?;
        }
        Ok(())
    };
    let forwarding = forward.forward(port, far);
    tokio::pin!(returning);
    tokio::pin!(forwarding);
    tokio::select! {
        // Polled first: a refusal ends the bytes from the pod too.
        biased;
        outcome = &mut forwarding => {
            returning.await?;
            if outcome.is_ok() {
                send(Bytes::new(), true).await?;
            }
            Ok(outcome)
        }
        // The pod has sent everything. The client may wait for exactly this before it ends its own side.
        returned = &mut returning => {
            returned?;
            send(Bytes::new(), true).await?;
            Ok(timeout(AFTER_POD_END, forwarding).await.unwrap_or(Ok(())))
        }
    }
}

/// Ends the error stream, with the error if there is one.
async fn end(writer: &Writer, pair: &Pair, outcome: Result<(), String>) -> Result<(), Closed> {
    match outcome {
        Ok(()) => writer.data(pair.error, Bytes::new(), true).await,
        Err(text) => {
            writer.data(pair.error, status::of_forward(pair.port, &text).into(), true).await?;
            writer.send(Frame::Reset { id: pair.data, status: CANCEL }).await
        }
    }
}
