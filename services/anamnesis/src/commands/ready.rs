//! `ready`: is the process that is configured here ready? Asked over HTTP, as anybody would ask: a container
//! has no other client to check its health with.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::cli::Exit;
use crate::config::{Config, Period};
use crate::failure::Failure;

/// A process that takes longer to say whether it is ready is not.
const PATIENCE: Duration = Duration::from_secs(4);
/// Why it is not ready is said in less.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// Between two questions, for whoever waits.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// Asks once, or again and again for as long as `wait`. A configuration that is wrong is told at once:
/// waiting does not mend it.
///
/// # Errors
/// When nobody answers, or the answer is not that it is ready.
pub async fn run(config: &Config, wait: Option<Period>) -> Result<Exit, Failure> {
    let until = Instant::now() + wait.map_or(Duration::ZERO, Period::duration);
    loop {
        let asked = ask(config).await;
        if asked.is_ok() || Instant::now() >= until {
            return asked;
        }
        sleep(ASK_EVERY).await;
    }
}

async fn ask(config: &Config) -> Result<Exit, Failure> {
    let mut address = config.listen;
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    let asked = timeout(PATIENCE, async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET /readyz HTTP/1.0\r\nhost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream
            .take(ANSWER_BYTES_MAX)
            .read_to_end(&mut answer)
            .await?;
        Ok::<_, std::io::Error>(answer)
    });
    let answer = match asked.await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return Err(Failure::unreachable(format!("{address}: {error}"))),
        Err(_) => {
            let what = format!("{address} has not answered within {PATIENCE:?}");
            return Err(Failure::unreachable(what));
        }
    };
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split_whitespace().nth(1);
    if status == Some("200") {
        crate::say!("ready");
        return Ok(Exit::Fine);
    }
    Err(Failure::does_not_hold(format!(
        "not ready: {}",
        body.trim()
    )))
}
