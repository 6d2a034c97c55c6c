//! How HTTP goes out: the proxy in force, whether it answers, and the certificate authorities that were named.

use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use mgp_transports::http::proxy::{BadProxy, ProxyAddress};
use mgp_transports::http::tls;

use super::Patient;
use super::finding::DoctorFinding;
use crate::config;
use crate::config::named_secrets::KernelLookup;

const AREA: &str = "network";
/// How long a proxy may take to take a connection.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn look(patient: &Patient<'_>) -> Vec<DoctorFinding> {
    let look_up = &patient.look_up;
    let Ok(loaded) = config::load_with(look_up, &KernelLookup::of(look_up), None) else {
        return Vec::new();
    };
    let network = &loaded.kernel.network;
    let rules = network.outbound().proxies;
    let mut found = Vec::new();
    let ways = match rules.http == rules.https {
        true => vec![("http and https", &rules.https)],
        false => vec![("http", &rules.http), ("https", &rules.https)],
    };
    for (what, proxy) in ways {
        if let Some(proxy) = proxy {
            found.push(answers(what, proxy));
        }
    }
    if !found.is_empty() && !network.names_proxy() {
        let told = "the proxy is that of this shell's variables; a kernel that a client or the system starts may not have them";
        let command = "set `proxy` in [network] of mgp.toml";
        found.push(DoctorFinding::warning(AREA, told).mended_by(command));
    }
    for entry in &rules.except.unread {
        let told = format!("NO_PROXY has {entry:?}, which is no name, address or network");
        found.push(DoctorFinding::warning(AREA, told).mended_by("take it out of NO_PROXY"));
    }
    if let Some(file) = &network.ca_file {
        let shown = file.display();
        found.push(match tls::trouble_with(file) {
            None => DoctorFinding::good(AREA, format!("the authorities in {shown} count, too")),
            Some(why) => DoctorFinding::broken(AREA, format!("{shown}: {why}"))
                .mended_by("set `ca_file` in [network] to a file with certificates in PEM"),
        });
    }
    found
}

fn answers(what: &str, proxy: &Result<ProxyAddress, BadProxy>) -> DoctorFinding {
    let mend = "set `proxy` in [network] of mgp.toml, or \"none\"";
    let proxy = match proxy {
        Ok(proxy) => proxy,
        Err(bad) => {
            return DoctorFinding::broken(AREA, format!("the proxy for {what}: {bad}"))
                .mended_by(mend);
        }
    };
    let (host, port) = proxy.place();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let dial = || {
        let at = (bare, port).to_socket_addrs().map_err(|e| e.to_string())?;
        let mut why = "its name has no address".to_owned();
        for at in at {
            match TcpStream::connect_timeout(&at, PATIENCE) {
                Ok(_) => return Ok(()),
                Err(e) => why = e.to_string(),
            }
        }
        Err(why)
    };
    match dial() {
        Ok(()) => DoctorFinding::good(AREA, format!("{what} goes through {proxy}, which answers")),
        Err(why) => {
            let told = format!("{what} goes through {proxy}, which does not answer: {why}");
            DoctorFinding::broken(AREA, told).mended_by(mend)
        }
    }
}
