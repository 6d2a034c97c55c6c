//! Opens a tunnel through a proxy (CONNECT, RFC 9110, section 9.3.6).

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::ProxyAddress;

/// Longest head of an answer, in bytes; proxies send some hundred. The body of a rejection is not read.
const HEAD_MAX: usize = 8 << 10;

/// Opens a tunnel to `target`, `host:port`, over a connection to the proxy.
///
/// # Errors
/// The reason of the failure, without credentials.
pub(in crate::http) async fn open_tunnel(
    tcp: &mut TcpStream,
    proxy: &ProxyAddress,
    target: &str,
) -> Result<(), String> {
    let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n").into_bytes();
    if let Some(value) = proxy.authorization() {
        request.extend_from_slice(b"Proxy-Authorization: ");
        request.extend_from_slice(value.as_bytes());
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    let sent = tcp.write_all(&request).await;
    sent.map_err(|e| e.to_string())?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= HEAD_MAX {
            return Err("its answer has no end".to_owned());
        }
        // Byte by byte: whatever follows the head belongs to the server.
        match tcp.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) if head.is_empty() => return Err("it closed the connection".to_owned()),
            Err(_) => return Err("it closed the connection in the middle of its answer".to_owned()),
        }
    }
    match parse_status(&head) {
        Some(200..=299) => Ok(()),
        Some(status) => Err(explain_refusal(
            status,
            proxy.authorization().is_some(),
            target,
        )),
        None => Err("it does not answer in HTTP".to_owned()),
    }
}

fn parse_status(head: &[u8]) -> Option<u16> {
    let line = std::str::from_utf8(head.split(|byte| *byte == b'\r').next()?).ok()?;
    let mut words = line.strip_prefix("HTTP/1.")?.split(' ');
    let code = words.nth(1)?;
    (code.len() == 3).then(|| code.parse().ok())?
}

/// Explains the status of a proxy, and the remedy.
pub(in crate::http) fn explain_refusal(status: u16, has_login: bool, target: &str) -> String {
    match (status, has_login) {
        (407, false) => "it wants a login: write it as http://USER:PASSWORD@HOST:PORT".to_owned(),
        (407, true) => "it does not accept the login in its address".to_owned(),
        (status, _) => format!("it gives no way to {target} (HTTP {status})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_that_is_no_http_has_no_status() {
        assert_eq!(
            parse_status(b"HTTP/1.1 200 Connection established\r\n\r\n"),
            Some(200)
        );
        assert_eq!(parse_status(b"HTTP/1.0 403\r\n\r\n"), Some(403));
        for none in [
            &b"SSH-2.0-x\r\n\r\n"[..],
            b"HTTP/1.1 2000 OK\r\n",
            b"HTTP/1.1\r\n",
            b"\xff\r\n",
        ] {
            assert_eq!(parse_status(none), None);
        }
    }
}
