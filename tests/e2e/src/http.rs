//! An HTTP client for a pod's web server: one GET, and no more.

use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::wait::{WITHIN, within};

/// How long one try may take: far longer than an answer, and short enough for many tries.
const TRY_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the body of `/`. The request is repeated until a server answers.
///
/// # Errors
/// If no server answers, or the answer is not 200.
pub async fn get(ip: &str, port: u16) -> anyhow::Result<String> {
    get_path(ip, port, "/").await
}

/// Returns the body of a path with its query, as [`get`] does.
///
/// # Errors
/// As [`get`].
pub async fn get_path(ip: &str, port: u16, path: &str) -> anyhow::Result<String> {
    let answer = within(WITHIN, async || answer(ip, port, path).await).await;
    let answer = answer.with_context(|| format!("waited {} s for an answer", WITHIN.as_secs()))?;
    body(&answer)
}

/// Returns the body of a path with its query, and asks once.
///
/// # Errors
/// If no server answers, or the answer is not 200.
pub async fn ask(ip: &str, port: u16, path: &str) -> anyhow::Result<String> {
    body(&answer(ip, port, path).await?)
}

async fn answer(ip: &str, port: u16, path: &str) -> anyhow::Result<String> {
    let answer = tokio::time::timeout(TRY_TIMEOUT, exchange(ip, port, path)).await;
    let answer = answer.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
    answer.map_err(|error| anyhow!("{ip}:{port}: {error}"))
}

async fn exchange(ip: &str, port: u16, path: &str) -> std::io::Result<String> {
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
