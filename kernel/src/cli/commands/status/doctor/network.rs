//! Checks outgoing HTTP: the proxy in force, whether it answers, and configured certificate authorities.

use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use mgp_transports::http::proxy::{ProxyAddress, ProxyAddressError};
use mgp_transports::http::tls;

use super::CheckContext;
use super::finding::Finding;
use crate::config;
use crate::config::named_secrets::KernelLookup;

const AREA: &str = "network";
/// Limit for connecting to a proxy.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) fn check(cx: &CheckContext<'_>) -> Vec<Finding> {
    let look_up = &cx.look_up;
    let Ok(loaded) = config::load_with_env(look_up, &KernelLookup::for_look_up(look_up), None)
    else {
        return Vec::new();
    };
    let network = &loaded.kernel.network;
    let rules = network.outbound().proxies;
    let mut found = Vec::new();
    let ways = if rules.http == rules.https {
        vec![("http and https", &rules.https)]
    } else {
        vec![("http", &rules.http), ("https", &rules.https)]
    };
    for (what, proxy) in ways {
        if let Some(proxy) = proxy {
            found.push(check_proxy(what, proxy));
        }
    }
    if !found.is_empty() && !network.has_proxy_setting() {
        let message = "the proxy is that of this shell's variables; a kernel that a client or the system starts may not have them";
        let command = "set `proxy` in [network] of mgp.toml";
        found.push(Finding::warning(AREA, message).with_command(command));
    }
    for entry in &rules.exceptions.invalid {
        let message = format!("NO_PROXY has {entry:?}, which is no name, address or network");
        found.push(Finding::warning(AREA, message).with_command("take it out of NO_PROXY"));
    }
    if let Some(file) = &network.ca_file {
        let shown = file.display();
        found.push(match tls::validate_authorities(file) {
            None => Finding::good(AREA, format!("the authorities in {shown} count, too")),
            Some(why) => Finding::broken(AREA, format!("{shown}: {why}"))
                .with_command("set `ca_file` in [network] to a file with certificates in PEM"),
        });
    }
    found
}

fn check_proxy(what: &str, proxy: &Result<ProxyAddress, ProxyAddressError>) -> Finding {
    let mend = "set `proxy` in [network] of mgp.toml, or \"none\"";
    let proxy = match proxy {
        Ok(proxy) => proxy,
        Err(bad) => {
            return Finding::broken(AREA, format!("the proxy for {what}: {bad}"))
                .with_command(mend);
        }
    };
    let (host, port) = proxy.host_and_port();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let dial = || {
        let at = (bare, port).to_socket_addrs().map_err(|e| e.to_string())?;
        let mut why = "its name has no address".to_owned();
        for at in at {
            match TcpStream::connect_timeout(&at, CONNECT_TIMEOUT) {
                Ok(_) => return Ok(()),
                Err(e) => why = e.to_string(),
            }
        }
        Err(why)
    };
    match dial() {
        Ok(()) => Finding::good(AREA, format!("{what} goes through {proxy}, which answers")),
        Err(why) => {
            let message = format!("{what} goes through {proxy}, which does not answer: {why}");
            Finding::broken(AREA, message).with_command(mend)
        }
    }
}
