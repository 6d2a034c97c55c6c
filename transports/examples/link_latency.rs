//! Measures the latency of a link: a call from one endpoint to another over loopback and back. Run it with `--release`.
//!
//! Prints, per payload size and number of calls in flight, the median and the 99th percentile of a call's duration, and
//! the calls per second.

use std::error::Error;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use mgp_protocol::federation::assertion::AssertionId;
use mgp_protocol::federation::call::{CallHeader, CallTag};
use mgp_protocol::federation::hello::{
    Hello, LifeId, NodeName, ReportedRole, WIRE_VERSIONS, WireFeatures,
};
use mgp_sync::Credit;
use mgp_transports::quic::{
    AcceptedPeer, Acceptor, CallFrame, InboundStream, LinkConfig, LinkEndpoint, NodeIdentity,
    NodeLink, NodeSigner,
};
use ring::signature::{Ed25519KeyPair, KeyPair};
use tokio::task::JoinSet;

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let (a, _own) = node(1)?;
    let (b, acceptor) = node(2)?;
    a.set_pinned_nodes([b.id()].into());
    b.set_pinned_nodes([a.id()].into());
    let answering = tokio::spawn(answer(acceptor));
    let at = b.address()?.to_string();
    let dialed = a.dial(b.id(), &at).await?;
    println!(
        "{:>10} {:>9} {:>10} {:>10} {:>9}",
        "bytes", "in flight", "half", "99 of 100", "calls/s"
    );
    for (size, in_flight, count) in [
        (200, 1, 2_000),
        (200, 16, 10_000),
        (200, 128, 20_000),
        (64 << 10, 1, 500),
        (64 << 10, 16, 1_000),
        (8 << 20, 1, 10),
    ] {
        measure(&dialed.link, size, in_flight, count).await?;
    }
    drop(dialed);
    answering.abort();
    Ok(())
}

async fn measure(
    link: &NodeLink,
    size: usize,
    in_flight: usize,
    count: usize,
) -> Result<(), Failure> {
    let params = Bytes::from(vec![b'x'; size]);
    let begun = Instant::now();
    let mut callers = JoinSet::new();
    for _ in 0..in_flight {
        let (link, params) = (link.clone(), params.clone());
        callers.spawn(async move {
            let mut took = Vec::new();
            for _ in 0..count / in_flight {
                let begun = Instant::now();
                call(&link, params.clone()).await?;
                took.push(begun.elapsed());
            }
            Ok::<_, Failure>(took)
        });
    }
    let mut took = Vec::new();
    while let Some(done) = callers.join_next().await {
        took.extend(done??);
    }
    let all = begun.elapsed();
    took.sort_unstable();
    let of = |hundredth: usize| took.get(took.len() * hundredth / 100).copied();
    println!(
        "{size:>10} {in_flight:>9} {:>10.0?} {:>10.0?} {:>9.0}",
        of(50).unwrap_or_default(),
        of(99).unwrap_or_default(),
        took.len() as f64 / all.as_secs_f64(),
    );
    Ok(())
}

async fn call(link: &NodeLink, params: Bytes) -> Result<(), Failure> {
    let header = CallHeader {
        method: "tools/call".to_owned(),
        server: Some("files".to_owned()),
        tag: CallTag([1; 16]),
        request: 1,
        trace: "4bf92f3577b34da6a3ce929d0e0e4736".to_owned(),
        assertion: Some(AssertionId([2; 16])),
        signed: None,
        has_session: false,
        hops: 1,
        left_ms: 0,
    };
    let until = tokio::time::Instant::now() + Duration::from_secs(30);
    let (mut input, _output) = link.open_call(header, params, until).await?;
    match input.next().await? {
        CallFrame::Result(_) => Ok(()),
        CallFrame::Relayed(_)
        | CallFrame::Error(_)
        | CallFrame::Refused(_)
        | CallFrame::OwnerRefusal(_) => Err("something else in the place of a result".into()),
    }
}

/// Answers every call with its own parameters.
async fn answer(mut acceptor: Acceptor) {
    let Some(AcceptedPeer::Link(mut taken)) = acceptor.next().await else {
        return;
    };
    let mut answers = JoinSet::new();
    loop {
        tokio::select! {
            stream = taken.inbound.next() => match stream {
                Ok(InboundStream::Call(call)) => {
                    answers.spawn(call.output.send_result(call.params));
                }
                Ok(InboundStream::Sync(_)) => {}
                Err(_) => return,
            },
            Some(_) = answers.join_next() => {}
        }
    }
}

#[derive(Debug)]
struct Key(Ed25519KeyPair, [u8; 32]);

impl NodeSigner for Key {
    fn public_key(&self) -> [u8; 32] {
        self.1
    }

    fn sign(&self, bytes: &[u8]) -> [u8; 64] {
        let mut signature = [0; 64];
        signature.copy_from_slice(self.0.sign(bytes).as_ref());
        signature
    }
}

fn node(n: u8) -> Result<(LinkEndpoint, Acceptor), Failure> {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[n; 32]).map_err(|e| e.to_string())?;
    let public = <[u8; 32]>::try_from(pair.public_key().as_ref())?;
    let name = NodeName::parse(&format!("node-{n}"))?;
    let hello = Hello {
        versions: WIRE_VERSIONS,
        features: WireFeatures::CALLS,
        life: LifeId([n; 16]),
        name,
        role: ReportedRole::Member,
        wall_ms: 0,
    };
    let config = LinkConfig {
        identity: NodeIdentity::new(Arc::new(Key(pair, public)))?,
        hello: Arc::new(move || hello.clone()),
        memory: Credit::new(1 << 30),
        relay: false,
    };
    Ok(LinkEndpoint::new(UdpSocket::bind("127.0.0.1:0")?, config)?)
}
