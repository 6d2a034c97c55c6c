//! Finds the fewest faults that explain the runs of a log: runs in order stay, others were moved or duplicated, and
//! missing records were removed or are damaged lines.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::{Head, LogFault, MAX_SPANS, Report, Run, SegmentOffset, Span};
use crate::store::audit::record::RecordDigest;

/// A run, or a part of one, with its position in the order of the log.
#[derive(Clone, Copy)]
struct Piece {
    run: Run,
    position: usize,
}

/// A damaged line: position in the order of the log, offset, and the number it still shows.
type DamagedLine = (usize, SegmentOffset, Option<u64>);

pub(super) fn diagnose(spans: &[Span], trimmed: Option<Head>, known: Option<Head>) -> Report {
    let mut faults = Vec::new();
    let pieces = split_runs(spans);
    if pieces.len() > 2 * MAX_SPANS {
        faults.push(LogFault::TooMany {
            place: pieces[0].run.place,
        });
        return build_report(&BTreeMap::new(), faults);
    }
    let order = longest_ordered(&pieces);
    let mut pieces_by_first: BTreeMap<u64, Piece> = BTreeMap::new();
    for index in &order {
        pieces_by_first.insert(pieces[*index].run.first, pieces[*index]);
    }
    for (_, piece) in (0..)
        .zip(&pieces)
        .filter(|(index, _)| !order.contains(index))
    {
        let Run {
            first: from,
            last: to,
            place,
            ..
        } = piece.run;
        if let Entry::Vacant(empty) = pieces_by_first.entry(from) {
            empty.insert(*piece);
            faults.push(LogFault::Moved { from, to, place });
        } else {
            faults.push(LogFault::Duplicated { from, to, place });
        }
    }
    let start = find_start(&pieces_by_first, trimmed, &mut faults);
    let mut damaged: Vec<DamagedLine> = damaged_lines(spans);
    let ordered: Vec<Piece> = order.iter().map(|index| pieces[*index]).collect();
    report_gaps(
        &ordered,
        &pieces_by_first,
        start,
        known,
        &mut damaged,
        &mut faults,
    );
    for (_, place, _) in damaged {
        faults.push(LogFault::Foreign { place });
    }
    check_links(&pieces_by_first, &mut faults);
    build_report(&pieces_by_first, faults)
}

fn build_report(pieces_by_first: &BTreeMap<u64, Piece>, faults: Vec<LogFault>) -> Report {
    let records = pieces_by_first
        .values()
        .map(|p| p.run.last - p.run.first + 1);
    let last = pieces_by_first.values().next_back();
    let head = last.and_then(|p| {
        Some(Head {
            sequence: p.run.last,
            hash: p.run.hash?,
        })
    });
    Report {
        records: records.sum(),
        head: head.unwrap_or(Head::START),
        faults,
        acknowledged: Vec::new(),
        damage: Vec::new(),
    }
}

/// Splits runs where others begin or end, so that two pieces have the same numbers or none in common.
fn split_runs(spans: &[Span]) -> Vec<Piece> {
    let mut cuts = BTreeSet::new();
    let runs = |span: &Span| match span {
        Span::Run(run) => Some(*run),
        Span::Damaged(..) => None,
    };
    for run in spans.iter().filter_map(runs) {
        cuts.insert(run.first);
        cuts.insert(run.last.saturating_add(1));
    }
    let mut pieces = Vec::new();
    for (position, span) in spans.iter().enumerate() {
        let Some(full) = runs(span) else { continue };
        let mut first = full.first;
        let inner = cuts.range(full.first..=full.last).skip(1);
        let ends: Vec<u64> = inner.map(|cut| cut - 1).chain([full.last]).collect();
        for last in ends {
            let run = Run {
                first,
                last,
                previous: full.previous.filter(|_| first == full.first),
                hash: full.hash.filter(|_| last == full.last),
                place: full.place,
            };
            pieces.push(Piece { run, position });
            first = last.saturating_add(1);
            if pieces.len() > 2 * MAX_SPANS {
                return pieces;
            }
        }
    }
    pieces
}

/// The pieces that are in order if as few records as possible count as moved.
fn longest_ordered(pieces: &[Piece]) -> BTreeSet<usize> {
    let mut best: Vec<(u64, Option<usize>)> = Vec::with_capacity(pieces.len());
    for (index, piece) in pieces.iter().enumerate() {
        let before = (0..index)
            .filter(|b| pieces[*b].run.last < piece.run.first)
            // Of equals the later one: it leaves the smaller gap.
            .max_by_key(|b| best[*b].0);
        let weight = piece.run.last - piece.run.first + 1;
        best.push((weight + before.map_or(0, |b| best[b].0), before));
    }
    let mut order = BTreeSet::new();
    let mut next = (0..pieces.len()).max_by_key(|index| best[*index].0);
    while let Some(index) = next {
        order.insert(index);
        next = best[index].1;
    }
    order
}

fn damaged_lines(spans: &[Span]) -> Vec<DamagedLine> {
    let lines = spans.iter().enumerate();
    lines
        .filter_map(|(position, span)| match span {
            Span::Damaged(place, stated) => Some((position, *place, *stated)),
            Span::Run(_) => None,
        })
        .collect()
}

/// The number the log should begin with.
fn find_start(
    pieces_by_first: &BTreeMap<u64, Piece>,
    trimmed: Option<Head>,
    faults: &mut Vec<LogFault>,
) -> u64 {
    let Some(piece) = pieces_by_first.values().next() else {
        return trimmed.map_or(1, |t| t.sequence + 1);
    };
    let first = piece.run.first;
    let anchor = trimmed.unwrap_or(Head::START);
    // The trim was recorded, and the kernel ended before all files were removed.
    let is_unfinished = first <= anchor.sequence;
    let is_mismatch = piece.run.previous.is_some_and(|p| p != anchor.hash);
    if !is_unfinished && first == anchor.sequence + 1 && is_mismatch {
        faults.push(LogFault::Unanchored { first });
    }
    if is_unfinished {
        first
    } else {
        anchor.sequence + 1
    }
}

/// Reports records that are in no piece: changed if a damaged line is in their position, otherwise removed.
fn report_gaps(
    ordered: &[Piece],
    pieces_by_first: &BTreeMap<u64, Piece>,
    start: u64,
    known: Option<Head>,
    damaged: &mut Vec<DamagedLine>,
    faults: &mut Vec<LogFault>,
) {
    let (mut next, mut after) = (start, 0);
    for piece in ordered {
        let missing = missing_ranges(pieces_by_first, next, piece.run.first);
        let rest = report_changed(missing, after..piece.position, damaged, faults);
        report_removed(rest, faults, |from, to| LogFault::Removed { from, to });
        (next, after) = (piece.run.last.saturating_add(1), piece.position);
    }
    // Only the known head and damaged lines show how many records followed the last one.
    let lines = damaged.iter().filter(|b| b.0 >= after).count() as u64;
    let last = known
        .map_or(0, |k| k.sequence)
        .max(next.saturating_add(lines) - 1);
    let missing = missing_ranges(pieces_by_first, next, last.saturating_add(1));
    let rest = report_changed(missing, after..usize::MAX, damaged, faults);
    let known_last = known.map_or(0, |k| k.sequence);
    let rest = rest.into_iter().flat_map(|r| clip(r, known_last)).collect();
    report_removed(rest, faults, |from, to| LogFault::Truncated { from, to });
}

/// Ranges of missing numbers in `from..to`.
fn missing_ranges(pieces_by_first: &BTreeMap<u64, Piece>, from: u64, to: u64) -> Vec<(u64, u64)> {
    let mut out = Vec::new();
    let mut next = from;
    for piece in pieces_by_first
        .range(from..to.max(from))
        .map(|(_, p)| p.run)
    {
        if next < piece.first {
            out.push((next, piece.first - 1));
        }
        next = piece.last.saturating_add(1);
    }
    if next < to {
        out.push((next, to - 1));
    }
    out
}

/// Assigns a missing number to each damaged line in `within`: the one it still shows if that is missing, or else the
/// first.
fn report_changed(
    mut missing: Vec<(u64, u64)>,
    within: std::ops::Range<usize>,
    damaged: &mut Vec<DamagedLine>,
    faults: &mut Vec<LogFault>,
) -> Vec<(u64, u64)> {
    damaged.retain(|(position, place, stated)| {
        let is_missing = |n: &u64| missing.iter().any(|(from, to)| (*from..=*to).contains(n));
        let first = missing.first().map(|r| r.0);
        let Some(sequence) = stated
            .filter(is_missing)
            .or(first)
            .filter(|_| within.contains(position))
        else {
            return true;
        };
        missing = missing
            .iter()
            .flat_map(|(from, to)| {
                if (*from..=*to).contains(&sequence) {
                    [(*from, sequence - 1), (sequence + 1, *to)]
                } else {
                    [(*from, *to), (1, 0)]
                }
            })
            .filter(|(from, to)| from <= to)
            .collect();
        faults.push(LogFault::Changed {
            sequence,
            place: *place,
        });
        false
    });
    missing
}

fn clip((from, to): (u64, u64), last: u64) -> Option<(u64, u64)> {
    (from <= last).then(|| (from, to.min(last)))
}

fn report_removed(
    ranges: Vec<(u64, u64)>,
    faults: &mut Vec<LogFault>,
    fault: impl Fn(u64, u64) -> LogFault,
) {
    faults.extend(ranges.into_iter().map(|(from, to)| fault(from, to)));
}

/// A record whose successor has another previous hash was rewritten with a valid hash.
fn check_links(pieces_by_first: &BTreeMap<u64, Piece>, faults: &mut Vec<LogFault>) {
    let mut before: Option<(u64, Option<RecordDigest>, SegmentOffset)> = None;
    for piece in pieces_by_first.values().map(|p| p.run) {
        if let Some((sequence, Some(hash), place)) = before
            && sequence.checked_add(1) == Some(piece.first)
            && piece.previous.is_some_and(|p| p != hash)
        {
            faults.push(LogFault::Changed { sequence, place });
        }
        before = Some((piece.last, piece.hash, piece.place));
    }
}
