//! A client's session with a command or a container, over SPDY.

use std::collections::HashMap;

use proto_cri::v1;
use runtime_streaming::client::{self, Event, Receiver, Sender};
use tests_e2e::client::Client;

/// A command's session over SPDY, with its streams open.
pub(crate) struct Session {
    sender: Sender,
    receiver: Receiver,
    ids: HashMap<&'static str, u32>,
    pub(crate) said: HashMap<&'static str, Vec<u8>>,
}

impl Session {
    pub(crate) async fn open(url: &str, names: &[&'static str]) -> Session {
        let (mut sender, receiver) = client::dial(url, client::COMMAND, None).await.unwrap();
        let mut ids = HashMap::new();
        for name in std::iter::once(&"error").chain(names) {
            ids.insert(*name, sender.open(&[("streamtype", name)]).await.unwrap());
        }
        Session { sender, receiver, ids, said: HashMap::new() }
    }

    pub(crate) async fn say(&self, name: &str, text: impl Into<bytes::Bytes>, end: bool) {
        self.sender.send(self.ids[name], text.into(), end).await.unwrap();
    }

    /// Takes the next message; false at the session's end.
    pub(crate) async fn step(&mut self) -> bool {
        let Some(event) = self.receiver.next().await.unwrap() else { return false };
        let Event::Data { id, bytes, fin } = event else { return true };
        let (name, _) = self.ids.iter().find(|(_, known)| **known == id).unwrap();
        self.said.entry(*name).or_default().extend_from_slice(&bytes);
        !(fin && *name == "error")
    }

    pub(crate) async fn until(&mut self, text: &str) {
        while !self.text("stdout").contains(text) {
            assert!(self.step().await, "{:?} ended without {text:?}", self.text("stdout"));
        }
    }

    /// The status at the session's end.
    pub(crate) async fn end(&mut self) -> serde_json::Value {
        while self.step().await {}
        serde_json::from_slice(&self.said["error"]).unwrap()
    }

    pub(crate) fn text(&self, name: &str) -> String {
        String::from_utf8_lossy(self.said.get(name).map_or(&[], Vec::as_slice)).into_owned()
    }
}

pub(crate) async fn exec_url(
    client: &mut Client,
    container: &str,
    command: &[&str],
    stdin: bool,
    tty: bool,
) -> String {
    let cmd = command.iter().map(ToString::to_string).collect();
    let container_id = container.to_owned();
    let request = v1::ExecRequest { container_id, cmd, tty, stdin, stdout: true, stderr: !tty };
    client.runtime.exec(request).await.unwrap().into_inner().url
}

pub(crate) async fn attach(client: &mut Client, container: &str, stdin: bool) -> Session {
    let container_id = container.to_owned();
    let request = v1::AttachRequest { container_id, stdin, stdout: true, stderr: true, tty: false };
    let url = client.runtime.attach(request).await.unwrap().into_inner().url;
    let names: &[_] = if stdin { &["stdin", "stdout", "stderr"] } else { &["stdout", "stderr"] };
    Session::open(&url, names).await
}
