//! Hosts and addresses of this machine, its networks or its cloud's metadata.

use std::net::{Ipv4Addr, Ipv6Addr};

use url::Host;

/// Suffixes of names that resolve to internal hosts: RFC 6761, 6762, 8375, and common practice.
const INNER_ENDINGS: [&str; 19] = [
    "localhost",
    "localdomain",
    "local",
    "internal",
    "intranet",
    "intra",
    "lan",
    "home",
    "corp",
    "private",
    "home.arpa",
    "localdomain4",
    "localdomain6",
    "svc",
    "consul",
    "docker",
    "fritz.box",
    "in-addr.arpa",
    "ip6.arpa",
];

/// Public names that resolve to this machine, with all names below them.
const LOOPBACK_DOMAINS: [&str; 25] = [
    "localhost.direct",
    "localtest.me",
    "lvh.me",
    "vcap.me",
    "lacolhost.com",
    "localh.st",
    "localho.st",
    "local.gd",
    "fuf.me",
    "ulh.us",
    "yoogle.com",
    "smackaho.st",
    "42foo.com",
    "beweb.com",
    "lndo.site",
    "ddev.site",
    "lcl.host",
    "local.sisteminha.com",
    "bugbounty.dod.network",
    "spoofed.burpcollaborator.net",
    "127-0-0-1.org.uk",
    "loopback.jp",
    "localtest.cc",
    "localtls.com",
    "vcap.io",
];

/// Names that are known to be internal.
const INNER_NAMES: [&str; 9] = [
    "localhost4",
    "localhost6",
    "ip6-localhost",
    "ip6-loopback",
    "loopback",
    "broadcasthost",
    "kubernetes.default",
    "host.docker.internal",
    "gateway.docker.internal",
];

/// Names of metadata services.
const METADATA_NAMES: [&str; 11] = [
    "metadata.goog",
    "metadata",
    "instance-data",
    "rancher-metadata",
    "metadata.google",
    "metadata.google.internal",
    "metadata.azure.com",
    "metadata.tencentyun.com",
    "metadata.platformequinix.com",
    "metadata.packet.net",
    "metadata.oraclecloud.com",
];

/// Services whose names contain the address they resolve to.
const ADDRESS_CARRYING_DOMAINS: [&str; 16] = [
    "nip.io",
    "sslip.io",
    "xip.io",
    "traefik.me",
    "local-ip.co",
    "local-ip.sh",
    "local-ip.dev",
    "my.local-ip.co",
    "ip.addr.tools",
    "backname.io",
    "nip.direct",
    "rbndr.us",
    "rebind.network",
    "1u.ms",
    "ipq.co",
    "plex.direct",
];

/// The reason why a host is internal; `None` if it is not known to be.
pub(super) fn internal_host_reason(host: &Host<String>) -> Option<&'static str> {
    match host {
        Host::Ipv4(ip) => internal_v4_reason(*ip),
        Host::Ipv6(ip) => internal_v6_reason(*ip),
        Host::Domain(name) => internal_name_reason(name),
    }
}

/// The reason why a name is internal; in any case, with or without the dot at the end.
pub(super) fn internal_name_reason(name: &str) -> Option<&'static str> {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    if METADATA_NAMES.contains(&name.as_str()) {
        return Some("a metadata service of a cloud");
    }
    if INNER_NAMES.contains(&name.as_str()) {
        return Some("a name of this machine or its network");
    }
    // A single word such as `home` is no request yet; `localhost` always is one.
    if !name.contains('.') {
        return (name == "localhost").then_some("a name of this machine or its network");
    }
    let ends = |ending: &str| {
        name.strip_suffix(ending)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    if INNER_ENDINGS.iter().any(|e| ends(e)) {
        return Some("a name of this machine or its network");
    }
    if LOOPBACK_DOMAINS.iter().any(|e| ends(e)) {
        return Some("a public name of this machine");
    }
    let carrier = ADDRESS_CARRYING_DOMAINS.iter().find(|c| ends(c))?;
    match name.strip_suffix(carrier)?.trim_matches('.') {
        "" | "www" => None,
        labels => embedded_address_reason(labels),
    }
}

/// The reason for an address in a name like `app.10-0-0-1.nip.io`; a name without a clear one is internal.
fn embedded_address_reason(labels: &str) -> Option<&'static str> {
    let labels = labels.trim_matches('.');
    let last = labels.rsplit('.').next().unwrap_or_default();
    let dotted = labels.rsplitn(5, '.').take(4).collect::<Vec<_>>();
    let dotted = dotted.into_iter().rev().collect::<Vec<_>>().join(".");
    let dashed = last.rsplitn(5, '-').take(4).collect::<Vec<_>>();
    let dashed = dashed.into_iter().rev().collect::<Vec<_>>().join(".");
    let address = [dotted, dashed]
        .iter()
        .find_map(|text| text.parse::<Ipv4Addr>().ok())
        .or_else(|| {
            (last.len() == 8)
                .then(|| u32::from_str_radix(last, 16).ok())?
                .map(Ipv4Addr::from)
        });
    match address {
        Some(ip) => internal_v4_reason(ip),
        None => Some("a name that resolves to an address of its writer's choice"),
    }
}

/// The reason for blocks of the IANA registry that are not globally reachable, and metadata addresses.
pub(super) fn internal_v4_reason(ip: Ipv4Addr) -> Option<&'static str> {
    let [a, b, c, _] = ip.octets();
    match (a, b, c) {
        (169, 254, _) if ip.octets()[2..] == [169, 254] => Some("a metadata service of a cloud"),
        (100, 100, 100) if ip.octets()[3] == 200 => Some("a metadata service of a cloud"),
        (168, 63, 129) if ip.octets()[3] == 16 => Some("a metadata service of a cloud"),
        (192, 0, 0) => Some("an address of a protocol or a metadata service"),
        (0, _, _) | (127, _, _) => Some("this machine"),
        (10, _, _) | (172, 16..=31, _) | (192, 168, _) => Some("a private network"),
        (169, 254, _) => Some("a link-local address"),
        (100, 64..=127, _) => Some("a provider's inner network (100.64.0.0/10)"),
        (192, 0, 2) | (198, 51, 100) | (203, 0, 113) | (198, 18..=19, _) | (192, 88, 99) => {
            Some("a reserved address")
        }
        (224..=239, _, _) => Some("a multicast address"),
        (240..=255, _, _) => Some("a reserved or broadcast address"),
        _ => None,
    }
}

/// The reason for IPv6 blocks, including every form that embeds an IPv4 address.
pub(super) fn internal_v6_reason(ip: Ipv6Addr) -> Option<&'static str> {
    let s = ip.segments();
    let v4 = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match s {
        // Compatible (`::1`, too), mapped, translated (SIIT), NAT64, and ISATAP.
        [0, 0, 0, 0, 0, 0, h, l]
        | [0, 0, 0, 0, 0, 0xffff, h, l]
        | [0, 0, 0, 0, 0xffff, 0, h, l]
        | [0x64, 0xff9b, 0, 0, 0, 0, h, l]
        | [_, _, _, _, 0 | 0x200, 0x5efe, h, l]
            if internal_v4_reason(v4(h, l)).is_some() =>
        {
            internal_v4_reason(v4(h, l))
        }
        [0x64, 0xff9b, 1, ..] => Some("a private network (64:ff9b:1::/48)"),
        [0x2002, h, l, ..] => internal_v4_reason(v4(h, l)),
        // Teredo: the inverted client address is at the end.
        [0x2001, 0, sh, sl, _, _, h, l] => {
            internal_v4_reason(v4(!h, !l)).or_else(|| internal_v4_reason(v4(sh, sl)))
        }
        [0xfd00, 0x0ec2, ..] => Some("a metadata service of a cloud"),
        [0xfc00..=0xfdff, ..] => Some("a private network (fc00::/7)"),
        [0xfe80..=0xfebf, ..] => Some("a link-local address"),
        [0xfec0..=0xfeff, ..] => Some("a site-local address"),
        [0xff00..=0xffff, ..] => Some("a multicast address"),
        [0x2001, 0xdb8, ..] | [0x3fff, ..] | [0x100, 0, 0, 0, ..] | [0x5f00, ..] => {
            Some("a reserved address")
        }
        _ => None,
    }
}

/// Every IPv4 address that some parser reads from a host of up to four numbers: hexadecimal, octal or
/// decimal with leading zeros, the last number filling the rest, too large ones reduced to a byte.
pub(super) fn possible_v4_addresses(host: &str) -> Vec<Ipv4Addr> {
    let host = host.trim_end_matches('.');
    let parts: Vec<&str> = host.split('.').collect();
    if host.is_empty() || parts.len() > 4 || host.len() > 80 {
        return Vec::new();
    }
    let read = |by: fn(&str) -> Option<u64>| {
        let numbers: Option<Vec<u64>> = parts.iter().map(|p| by(p)).collect();
        numbers.map(|n| fill_v4(&n))
    };
    [read(parse_prefixed), read(parse_decimal)]
        .into_iter()
        .flatten()
        .collect()
}

fn fill_v4(numbers: &[u64]) -> Ipv4Addr {
    let (last, heads) = numbers.split_last().expect("a host has a part");
    let mut value = 0_u64;
    for head in heads {
        value = (value << 8) + (head & 0xff);
    }
    let rest = 8 * (4 - heads.len());
    let value = (value << rest) + (last & ((1 << rest) - 1));
    Ipv4Addr::from(u32::try_from(value & 0xffff_ffff).unwrap_or_default())
}

fn parse_prefixed(part: &str) -> Option<u64> {
    let lower = part.to_ascii_lowercase();
    if let Some(hex) = lower.strip_prefix("0x") {
        let hex = if hex.is_empty() { "0" } else { hex };
        return u64::from_str_radix(hex, 16).ok();
    }
    if let Some(binary) = lower.strip_prefix("0b") {
        return u64::from_str_radix(binary, 2).ok();
    }
    match lower.strip_prefix("0o").or_else(|| lower.strip_prefix('0')) {
        Some("") => Some(0),
        Some(octal) => u64::from_str_radix(octal, 8).ok(),
        None => parse_decimal(part),
    }
}

fn parse_decimal(part: &str) -> Option<u64> {
    part.bytes()
        .all(|c| c.is_ascii_digit())
        .then(|| part.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// MGP-060: every block is checked at both ends.
    #[test]
    fn private_blocks_have_exact_ends() {
        for (first, last) in [
            ("0.0.0.0", "0.255.255.255"),
            ("10.0.0.0", "10.255.255.255"),
            ("100.64.0.0", "100.127.255.255"),
            ("127.0.0.0", "127.255.255.255"),
            ("169.254.0.0", "169.254.255.255"),
            ("172.16.0.0", "172.31.255.255"),
            ("192.168.0.0", "192.168.255.255"),
            ("224.0.0.0", "255.255.255.255"),
        ] {
            let [first, last] = [first, last].map(|t| t.parse::<Ipv4Addr>().unwrap());
            assert!(
                internal_v4_reason(first).is_some() && internal_v4_reason(last).is_some(),
                "{first}"
            );
            for beyond in [
                first.to_bits().wrapping_sub(1),
                last.to_bits().wrapping_add(1),
            ] {
                let beyond = Ipv4Addr::from(beyond);
                let next = internal_v4_reason(beyond);
                let wraps = [0, u32::MAX].contains(&beyond.to_bits());
                assert!(next.is_none() || wraps, "{beyond} {next:?}");
            }
        }
        for open in [
            "8.8.8.8",
            "1.1.1.1",
            "172.15.0.1",
            "172.32.0.1",
            "100.128.0.1",
        ] {
            assert_eq!(internal_v4_reason(open.parse().unwrap()), None, "{open}");
        }
        for open in [
            "2606:4700:4700::1111",
            "64:ff9b::808:808",
            "2002:808:808::1",
        ] {
            assert_eq!(internal_v6_reason(open.parse().unwrap()), None, "{open}");
        }
    }

    /// MGP-060: addresses of each block, inside and beside it, with the block's reason.
    #[test]
    fn every_block_has_its_reason() {
        let v4 = [
            ("169.254.169.254", "a metadata"),
            ("169.254.169.253", "a link-local"),
            ("169.254.168.254", "a link-local"),
            ("100.100.100.200", "a metadata"),
            ("100.100.100.201", "a provider's"),
            ("100.100.101.200", "a provider's"),
            ("168.63.129.16", "a metadata"),
            ("168.63.129.17", ""),
            ("192.0.0.170", "an address of a protocol"),
            ("192.0.1.1", ""),
            ("192.0.2.1", "a reserved"),
            ("198.51.100.1", "a reserved"),
            ("203.0.113.1", "a reserved"),
            ("198.17.255.255", ""),
            ("198.18.0.0", "a reserved"),
            ("198.19.255.255", "a reserved"),
            ("198.20.0.0", ""),
            ("192.88.99.1", "a reserved"),
            ("172.16.0.1", "a private"),
            ("192.168.0.1", "a private"),
            ("127.0.0.1", "this machine"),
            ("239.255.255.255", "a multicast"),
            ("240.0.0.0", "a reserved or"),
        ];
        for (address, block) in v4 {
            let reason = internal_v4_reason(address.parse().unwrap()).unwrap_or_default();
            assert!(
                reason.starts_with(block) && block.is_empty() == reason.is_empty(),
                "{address} {reason}"
            );
        }
        let v6 = [
            ("::", "this machine"),
            ("::1", "this machine"),
            ("::10.0.0.1", "a private"),
            ("::ffff:10.0.0.1", "a private"),
            ("::ffff:0:10.0.0.1", "a private"),
            ("64:ff9b::10.0.0.1", "a private"),
            ("2606::5efe:10.0.0.1", "a private"),
            ("2606::200:5efe:10.0.0.1", "a private"),
            ("2606::100:5efe:10.0.0.1", ""),
            ("::ffff:8.8.8.8", ""),
            ("2606::5efe:8.8.8.8", ""),
            ("64:ff9b:1::8.8.8.8", "a private"),
            ("2002:a00:1::", "a private"),
            ("2001:0:808:808::f5ff:fffe", "a private"),
            ("2001:0:a00:1::f7f7:f7f7", "a private"),
            ("2001:0:808:808::f7f7:f7f7", ""),
            ("2001:0:808:808::3fff:fdfe", "a reserved"),
            ("fd00::5efe:8.8.8.8", "a private"),
            ("2001:1:a00:1::f5ff:fffe", ""),
            ("fd00:ec2::254", "a metadata"),
            ("fd00:ec3::254", "a private"),
            ("fbff::1", ""),
            ("fc00::1", "a private"),
            ("fdff::1", "a private"),
            ("fe7f::1", ""),
            ("fe80::1", "a link-local"),
            ("febf::1", "a link-local"),
            ("fec0::1", "a site-local"),
            ("feff::1", "a site-local"),
            ("ff00::1", "a multicast"),
            ("ffff::1", "a multicast"),
            ("2001:db8::1", "a reserved"),
            ("2001:db9::1", ""),
            ("3fff::1", "a reserved"),
            ("100::1", "a reserved"),
            ("100:0:0:1::1", ""),
            ("5f00::1", "a reserved"),
        ];
        for (address, block) in v6 {
            let reason = internal_v6_reason(address.parse().unwrap()).unwrap_or_default();
            assert!(
                reason.starts_with(block) && block.is_empty() == reason.is_empty(),
                "{address} {reason}"
            );
        }
    }

    /// MGP-060: a name is compared by whole labels, in any case, with or without the dot at its end.
    #[test]
    fn names_are_internal_by_their_labels() {
        for name in [
            "metadata",
            "Metadata.Google.Internal.",
            "host.docker.internal",
            "LOCALHOST",
            "loopback",
            "printer.local",
            "fritz.box",
            "nas.fritz.box",
            "lvh.me",
            "a.lvh.me.",
            "10.0.0.1.nip.io",
            "app.10.0.0.1.nip.io",
            "10-0-0-1.nip.io",
            "app-10-0-0-1.nip.io",
            "www-app.app-10-0-0-1.nip.io",
            "0a000001.nip.io",
            "app.nip.io",
            "08080808a.nip.io",
            "8080808.nip.io",
        ] {
            assert!(internal_name_reason(name).is_some(), "{name}");
        }
        for name in [
            "home",
            "local",
            "example.com",
            "xlocal.example",
            "notfritz.box",
            "alvh.me",
            "nip.io",
            "www.nip.io",
            "8.8.8.8.nip.io",
            "app.8-8-8-8.nip.io",
            "08080808.nip.io",
        ] {
            assert_eq!(internal_name_reason(name), None, "{name}");
        }
    }

    /// MGP-060: numbers fill an address as the C library fills it; longer or more are no address.
    #[test]
    fn numbers_of_each_notation_fill_an_address() {
        let is_read =
            |host: &str, as_ip: [u8; 4]| possible_v4_addresses(host).contains(&as_ip.into());
        for (host, ip) in [
            ("1.2.3.4", [1, 2, 3, 4]),
            ("1.2.3.4.", [1, 2, 3, 4]),
            ("1.2.772", [1, 2, 3, 4]),
            ("1.131844", [1, 2, 3, 4]),
            ("16909060", [1, 2, 3, 4]),
            ("257.258.3.260", [1, 2, 3, 4]),
            ("1.16777217", [1, 0, 0, 1]),
            ("0x7f.1", [127, 0, 0, 1]),
            ("0X7F.0x", [127, 0, 0, 0]),
            ("0b1111111.1", [127, 0, 0, 1]),
            ("0o177.1", [127, 0, 0, 1]),
            ("0177.1", [127, 0, 0, 1]),
            ("0177.1", [177, 0, 0, 1]),
            ("0.0.0.0", [0, 0, 0, 0]),
        ] {
            assert!(is_read(host, ip), "{host} {ip:?}");
        }
        let long = |zeros: usize| format!("{}1.0.0.1", "0".repeat(zeros));
        assert!(is_read(&long(73), [1, 0, 0, 1]));
        for host in ["", ".", "1.2.3.4.5", "a.1", "0xg.1", "1..2.", &long(74)] {
            let read = possible_v4_addresses(host);
            assert!(read.is_empty(), "{host} {read:?}");
        }
    }

    proptest! {
        /// MGP-060: a private address is found in each of its forms.
        #[test]
        fn private_address_is_found_in_any_notation(
            ip in (0u32..=u32::MAX).prop_map(|n| Ipv4Addr::from(0x7f00_0000 | n & 0xff_ffff))
        ) {
            let n = ip.to_bits();
            let [a, b, c, d] = ip.octets();
            for text in [
                ip.to_string(), n.to_string(), format!("{n:#x}"), format!("0{n:o}"),
                format!("0{a:o}.{b:#x}.{c}.{d}"), format!("{a}.{}", n & 0xff_ffff),
                format!("{a}.{b}.{}", n & 0xffff), format!("{a:04}.{b:04}.{c:04}.{d:04}"),
                format!("{}.{}.{}.{}", u32::from(a) + 256, b, c, d),
            ] {
                prop_assert!(possible_v4_addresses(&text).iter().any(|ip| internal_v4_reason(*ip).is_some()), "{}", text);
            }
            for text in [
                format!("::ffff:{ip}"), format!("::{ip}"), format!("64:ff9b::{ip}"),
                format!("2002:{:x}:{:x}::1", n >> 16, n & 0xffff), format!("::ffff:0:{ip}"),
                format!("2001:0:808:808::{:x}:{:x}", !n >> 16, !n & 0xffff),
            ] {
                prop_assert!(internal_v6_reason(text.parse().unwrap()).is_some(), "{}", text);
            }
        }
    }
}
