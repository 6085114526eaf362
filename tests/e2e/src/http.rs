//! An HTTP client for a pod's web server: one GET, and no more.

use std::time::Duration;

use anyhow::{Context, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long one try may take.
const TRY_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause between two tries.
const TRY_INTERVAL: Duration = Duration::from_millis(200);

/// Returns the body of `/`. The request is repeated until somebody listens.
///
/// # Errors
/// When nobody answers within `tries_max` tries, or the answer is not 200.
pub async fn get(ip: &str, port: u16, tries_max: u32) -> anyhow::Result<String> {
    get_path(ip, port, "/", tries_max).await
}

/// Returns the body of a path with its query, as [`get`] does.
///
/// # Errors
/// As [`get`].
pub async fn get_path(ip: &str, port: u16, path: &str, tries_max: u32) -> anyhow::Result<String> {
    let mut last = None;
    for _ in 0..tries_max {
        match tokio::time::timeout(TRY_TIMEOUT, ask(ip, port, path)).await {
            Ok(Ok(answer)) => return body(&answer),
            Ok(Err(error)) => last = Some(error.to_string()),
            Err(_) => last = Some("no answer".to_owned()),
        }
        tokio::time::sleep(TRY_INTERVAL).await;
    }
    bail!("{ip}:{port}: {}", last.unwrap_or_default())
}

async fn ask(ip: &str, port: u16, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect((ip, port)).await?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {ip}\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

fn body(answer: &str) -> anyhow::Result<String> {
    let (head, body) = answer.split_once("\r\n\r\n").context("an answer without a body")?;
    match head.lines().next() {
        Some(line) if line.contains(" 200") => Ok(body.to_owned()),
        line => bail!("the answer is {line:?}"),
    }
}
