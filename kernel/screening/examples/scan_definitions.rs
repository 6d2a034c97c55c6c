//! Judges a JSON file of servers' definitions: `scan_definitions FILE [all]`. Prints how many are held, by class, and
//! with `all` also each server with its reasons.

#![allow(clippy::disallowed_methods, clippy::print_stdout, clippy::unwrap_used)]

use std::collections::BTreeMap;

use mgp_screening::definitions::{Judgement, Surroundings, judge_definition, judge_instructions};
use serde_json::Value;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().unwrap();
    let show = arguments.next();
    let all: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let none = Surroundings::default();
    let mut by_class: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let (mut held, total) = (0, all.len());
    for server in &all {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut worst = server["instructions"]
            .as_str()
            .map_or_else(Judgement::default, judge_instructions);
        let list = |member: &str| server[member].as_array().cloned().unwrap_or_default();
        for definition in list("tools").into_iter().chain(list("prompts")) {
            let judged = judge_definition(&definition.to_string(), &none);
            if judged.score > worst.score {
                worst = judged;
            }
        }
        let class = by_class.entry(text(&server["class"])).or_default();
        class.1 += 1;
        if worst.is_held() {
            class.0 += 1;
            held += 1;
        }
        if show.is_some() {
            println!(
                "{} {} {} {}",
                text(&server["id"]),
                worst.score,
                text(&server["class"]),
                text(&server["note"])
            );
            for reason in worst.reasons().take(8) {
                println!("      {reason}");
            }
        }
    }
    for (class, (held, total)) in by_class {
        println!("{class}: {held} of {total}");
    }
    println!("held {held} of {total}");
}
