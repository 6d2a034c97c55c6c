//! What membership costs with many nodes, on a simulated network: packets and bytes that a node sends in a
//! second, and how long it takes until all know. `cargo bench -p mgp-engine --bench membership [NODES]`

#[path = "../tests/membership/network.rs"]
mod network;

use network::{Network, Traffic};

fn main() {
    let nodes = std::env::args().filter_map(|arg| arg.parse().ok()).next();
    let nodes: usize = nodes.unwrap_or(1_000);
    let mut network = Network::new(nodes + 1, 42);
    for n in 0..nodes {
        let knows = (n > 0).then(|| n * 7 / 13 % n.max(1));
        network.start(n, knows);
        network.run(20);
    }
    println!("{nodes} nodes started 20 ms apart, each knowing one");
    let mut waited = 0;
    while waited < 120_000 && (0..nodes).any(|n| network.known(n) < nodes - 1) {
        network.run(500);
        waited += 500;
    }
    let fewest = (0..nodes)
        .map(|n| network.known(n))
        .min()
        .unwrap_or_default();
    println!(
        "all know {fewest} others {:.1} s after the last start",
        waited as f64 / 1000.0
    );
    told(
        "starting",
        network.traffic,
        nodes,
        20 * nodes as u64 + waited,
    );

    network.run(60_000);
    idle(&mut network, nodes, "idle", 30_000);

    network.start(nodes, Some(0));
    idle(&mut network, nodes, "a node comes", 10_000);
    println!(
        "  {} of {nodes} know it after 10 s, it knows {}",
        network.believers(nodes),
        network.known(nodes)
    );

    network.kill(nodes / 2);
    network.traffic = Traffic::default();
    let mut waited = 0;
    while waited < 60_000 && network.believers(nodes / 2) > 0 {
        network.run(250);
        waited += 250;
        if waited == 3_000 {
            println!(
                "  {} of {nodes} still believe after 3 s",
                network.believers(nodes / 2)
            );
        }
    }
    told("a node dies", network.traffic, nodes, waited);
    println!(
        "  nobody believes it to be there after {:.2} s; {} deaths were false",
        waited as f64 / 1000.0,
        network.false_deaths
    );
}

fn idle(network: &mut Network, nodes: usize, what: &str, millis: u64) {
    network.traffic = Traffic::default();
    network.run(millis);
    told(what, network.traffic, nodes, millis);
}

fn told(what: &str, traffic: Traffic, nodes: usize, millis: u64) {
    let a_second = |count: u64| count as f64 / nodes as f64 / (millis as f64 / 1000.0);
    println!(
        "{what}: {:.1} packets/s and {:.0} bytes/s from each node, the largest of {} bytes",
        a_second(traffic.packets),
        a_second(traffic.bytes),
        traffic.largest,
    );
}
