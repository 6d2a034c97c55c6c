//! Calls over a network that loses one packet in twenty, and reorders the others.

use bytes::Bytes;
use std::sync::atomic::Ordering;

use super::bad_wire::{BadWire, Faults};
use super::scene::{call, echoes, soon, two};

#[tokio::test]
async fn calls_survive_loss_and_reordering() {
    for seed in [3, 0x5eed] {
        let (a, mut b) = two();
        let (lost, delay_ms) = (50, 15);
        let badness = Faults {
            seed,
            lost,
            delay_ms,
        };
        let wire = BadWire::to(&b.at, badness).await;
        let dialed = soon(a.endpoint.dial(b.id, &wire.at)).await.unwrap();
        let taken = b.link().await;
        let answering = echoes(taken.inbound);
        let mut calls = tokio::task::JoinSet::new();
        for n in 0..24u8 {
            let link = dialed.link.clone();
            calls.spawn(async move {
                let params = Bytes::from(vec![n; 16 << 10]);
                assert_eq!(call(&link, params.clone()).await, params, "of seed {seed}");
            });
        }
        while let Some(done) = soon(calls.join_next()).await {
            done.unwrap();
        }
        assert!(wire.counts.lost.load(Ordering::Relaxed) > 0);
        assert!(dialed.link.end_reason().is_none() && taken.link.end_reason().is_none());
        answering.abort();
    }
}
