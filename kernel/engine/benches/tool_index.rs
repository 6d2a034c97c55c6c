//! What the tools of many other nodes cost here: the copying of their indexes, the reading of them into catalog
//! and search, and the memory of all three.
//! `cargo bench -p mgp-engine --bench tool_index [NODES] [TOOLS]`, tools of all nodes together.

// It measures: this is no engine.
#![allow(clippy::disallowed_methods)]

#[path = "memory/resident.rs"]
mod memory;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mgp_engine::clock::MonotonicTime;
use mgp_engine::cluster::shares::{Share, ShareAudience, ShareChange, Shares, ToolPattern};
use mgp_engine::cluster::tool_index::{
    IndexEffect, LocalIndex, OfferedServer, RemoteEntry, RemoteIndexes, hash_schemas,
};
use mgp_engine::tools::catalog::cursor::CursorKey;
use mgp_engine::tools::catalog::{
    Catalog, CatalogTool, ListKind, Paging, ServerOffer, changed_lists,
};
use mgp_engine::tools::index::{IndexDraft, ServerIndex};
use mgp_protocol::federation::tool_index::{ServerRecord, ToolRecord, ToolVector};
use mgp_protocol::ids::{NodeId, ServerId};
use mgp_protocol::mgp::discovery::Status;
use mgp_protocol::mgp::discovery::security::RiskLevel;

/// Tools of one server.
const OF_A_SERVER: usize = 50;
/// Numbers of a vector, as the model that comes with the kernel gives it.
const NUMBERS: usize = 384;

fn main() {
    let mut numbers = std::env::args().filter_map(|word| word.parse::<usize>().ok());
    let nodes = numbers.next().unwrap_or(32);
    let tools = numbers.next().unwrap_or(100_000);
    // All of them stay, so that none takes the memory that another one gave back.
    let plain = held(nodes, tools / nodes, false);
    let offers = offers(&plain, nodes);
    let catalog = catalog(&offers);
    let index = index(&offers);
    let with_vectors = held(nodes, tools / nodes, true);
    drop((plain, offers, catalog, index, with_vectors));
}

/// What is held as the catalog takes it, server by server.
fn offers(held: &RemoteIndexes, nodes: usize) -> Vec<Arc<ServerOffer>> {
    let read = |n: usize| {
        let (index, _) = held.get(node(n), MonotonicTime::START).expect("it is held");
        let mut servers: BTreeMap<&ServerId, Vec<Arc<str>>> = BTreeMap::new();
        for (key, entry) in index.entries() {
            let tools = servers.entry(&key.server).or_default();
            if let RemoteEntry::Tool(tool) = entry {
                tools.push(Arc::clone(&tool.definition));
            }
        }
        let offer = |(server, tools): (&ServerId, Vec<Arc<str>>)| {
            let server = ServerId::new_remote(&format!("node{n}"), server);
            Arc::new(ServerOffer::new(server).with_list(ListKind::Tools, &tools))
        };
        servers.into_iter().map(offer).collect::<Vec<_>>()
    };
    let (offers, cost) = measured(|| (0..nodes).flat_map(read).collect::<Vec<_>>());
    let tools: usize = offers.iter().map(|offer| offer.counts().tools).sum();
    cost.print("read for the catalog, each schema compiled once", tools);
    offers
}

fn catalog(offers: &[Arc<ServerOffer>]) -> Catalog {
    let tools = offers.iter().map(|offer| offer.counts().tools).sum();
    let first = Catalog::empty(Paging::new(CursorKey::new([1; 32])));
    let (catalog, cost) = measured(|| first.with_offers(offers));
    cost.print("one catalog of them", tools);
    let (next, cost) = measured(|| {
        let next = catalog.with_offers(offers);
        assert!(changed_lists(&catalog, &next).is_empty());
        next
    });
    cost.print("the next one, with nothing new", tools);
    drop(next);
    catalog
}

fn index(offers: &[Arc<ServerOffer>]) -> Vec<ServerIndex> {
    let read = |offer: &Arc<ServerOffer>| {
        let server = offer.server();
        let draft = |tool: &Arc<CatalogTool>| {
            IndexDraft::parse(server, &tool.own_name, &tool.raw, None, RiskLevel::Moderate)
        };
        ServerIndex::new(server, "", offer.tools().iter().map(draft).collect())
    };
    let tools = offers.iter().map(|offer| offer.counts().tools).sum();
    let (index, cost) = measured(|| offers.iter().map(read).collect::<Vec<_>>());
    cost.print("indexed for searching by words", tools);
    index
}

struct Cost {
    bytes: u64,
    took: Duration,
}

fn measured<T>(work: impl FnOnce() -> T) -> (T, Cost) {
    let (before, began) = (memory::resident(), Instant::now());
    let made = work();
    let took = began.elapsed();
    let bytes = memory::resident().saturating_sub(before);
    (made, Cost { bytes, took })
}

impl Cost {
    fn print(&self, what: &str, tools: usize) {
        println!(
            "{tools} tools {what}: {} bytes of memory a tool, {} MiB; {:.1?}, {:.1} µs a tool",
            self.bytes / tools as u64,
            self.bytes >> 20,
            self.took,
            self.took.as_secs_f64() * 1e6 / tools as f64,
        );
    }
}

/// One node holds the indexes of so many others.
fn held(nodes: usize, tools: usize, with_vectors: bool) -> RemoteIndexes {
    let here = node(nodes);
    let mut indexes = RemoteIndexes::default();
    let (mut grown, mut took, mut bytes) = (0, Duration::ZERO, 0);
    for n in 0..nodes {
        // What the owner holds of it is gone before the next one's is made.
        let mut own = offered(n, tools, with_vectors);
        let before = memory::resident();
        let began = Instant::now();
        let now = MonotonicTime::START;
        let mut effects = indexes.handle_digest(node(n), own.digest(here), now);
        while let Some(pull) = effects.iter().find_map(pull) {
            let page = own.page(here, &pull);
            effects = indexes.handle_page(node(n), page, now);
        }
        took += began.elapsed();
        grown += memory::resident().saturating_sub(before);
        let (index, _) = indexes.get(node(n), now).expect("it was told");
        assert!(index.is_current(), "{:?}", index.error());
        bytes += index.bytes();
    }
    let all = nodes * tools;
    println!(
        "{all} tools of {nodes} nodes, {}: {} bytes of records a tool, {} bytes of memory a tool, {} MiB; copied in {took:.1?}, {:.1} µs a tool",
        if with_vectors {
            "with vectors"
        } else {
            "without vectors"
        },
        bytes / all,
        grown / all as u64,
        grown >> 20,
        took.as_secs_f64() * 1e6 / all as f64,
    );
    indexes
}

fn pull(effect: &IndexEffect) -> Option<mgp_protocol::federation::tool_index::PullIndex> {
    match effect {
        IndexEffect::Pull(pull) => Some(*pull),
        IndexEffect::Set(_) | IndexEffect::Removed(_) | IndexEffect::Report(_) => None,
    }
}

fn node(n: usize) -> NodeId {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&(n as u64).to_be_bytes());
    NodeId(bytes)
}

fn offered(n: usize, tools: usize, with_vectors: bool) -> LocalIndex {
    let mut own = LocalIndex::new(n as u64 + 1);
    let mut shares = Shares::default();
    for first in (0..tools).step_by(OF_A_SERVER) {
        let server = ServerId::new(format!("server-{}", first / OF_A_SERVER));
        let names = first..(first + OF_A_SERVER).min(tools);
        let tools = names.map(|tool| {
            (
                Arc::from(format!("tool_{tool}")),
                record(tool, with_vectors),
            )
        });
        let offered = OfferedServer {
            record: ServerRecord {
                state: Status::Connected,
                specification: None,
                replica: false,
                stateful: false,
                starting: false,
            },
            tools: tools.collect::<BTreeMap<Arc<str>, ToolRecord>>(),
        };
        own.offer(&server, Some(&offered));
        shares.apply(&ShareChange::Share(Share {
            server,
            to: ShareAudience::Cluster,
            tools: ToolPattern::all(),
        }));
    }
    own.set_shares(shares);
    own
}

/// A definition of the usual length, with a schema that no other one has.
fn record(tool: usize, with_vectors: bool) -> ToolRecord {
    let definition = format!(
        r#"{{"name":"tool_{tool}","description":"Reads the {tool}th of the files that were written since the last time somebody looked, and gives back what it says together with who wrote it and when.","inputSchema":{{"type":"object","properties":{{"path":{{"type":"string","description":"Which file, from the folder that is served"}},"encoding":{{"type":"string","enum":["utf-8","base64"]}},"lines":{{"type":"integer","minimum":1,"maximum":{tool}}}}},"required":["path"],"additionalProperties":false}}}}"#
    );
    let vector = with_vectors.then(|| ToolVector {
        model: "all-MiniLM-L6-v2".into(),
        unit: 1.0 / 127.0,
        numbers: direction(tool),
    });
    ToolRecord {
        schemas: hash_schemas(&definition).expect("a definition"),
        definition,
        idempotent: false,
        vector,
    }
}

/// A vector of length 1: all of it in one place.
fn direction(tool: usize) -> Vec<u8> {
    let mut numbers = vec![0; NUMBERS];
    numbers[tool % NUMBERS] = 127;
    numbers
}
