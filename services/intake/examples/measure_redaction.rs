//! How much of a labelled set does redaction find, and does it leave alone what must stay? Reads
//! `pii/{zh,en}.jsonl` below the folder that `ANAMNESIS_DATA` names.

use std::collections::BTreeMap;

use anamnesis_intake::redact::redact;
use serde_json::Value;

/// Kinds of the sets that are structured identifiers; names, places and the like are not.
const STRUCTURED: [&str; 15] = [
    "PHONE",
    "PHONE_NUMBER",
    "BANK_CARD",
    "CREDIT_CARD",
    "INSURANCE_NO",
    "ID_CARD",
    "PASSPORT",
    "MRN",
    "EMAIL",
    "EMAIL_ADDRESS",
    "WECHAT",
    "PLATE",
    "US_SSN",
    "IP_ADDRESS",
    "IBAN_CODE",
];

fn main() {
    let Ok(data) = std::env::var("ANAMNESIS_DATA") else {
        eprintln!("set ANAMNESIS_DATA to the folder that holds pii/");
        std::process::exit(2);
    };
    for language in ["zh", "en"] {
        let path = std::path::Path::new(&data)
            .join("pii")
            .join(format!("{language}.jsonl"));
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => {
                eprintln!("{}: {error}", path.display());
                std::process::exit(2);
            }
        };
        measure(language, &text);
    }
}

fn measure(language: &str, text: &str) {
    let verbose = std::env::args().any(|argument| argument == "--show");
    let mut kinds: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    let (mut kept, mut keep, mut placed, mut right) = (0, 0, 0, 0);
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).expect("a row of the set");
        let redacted = redact(row["text"].as_str().expect("a text"), |_, _| 0);
        let spans = |field: &str| row[field].as_array().cloned().unwrap_or_default();
        let range = |span: &Value| {
            let at = |key: &str| span[key].as_u64().expect("an offset") as u32;
            at("start")..at("end")
        };
        let overlaps =
            |a: &std::ops::Range<u32>, b: &std::ops::Range<u32>| a.start < b.end && b.start < a.end;
        for span in spans("spans") {
            let kind = span["type"].as_str().expect("a type");
            if STRUCTURED.contains(&kind) {
                let wanted = range(&span);
                let found = redacted
                    .spans
                    .iter()
                    .any(|span| span.from.start <= wanted.start && wanted.end <= span.from.end);
                let count = kinds.entry(kind.to_owned()).or_default();
                count.0 += u32::from(found);
                count.1 += 1;
                if verbose && !found {
                    println!("missed {kind} {} in {}", span["value"], row["text"]);
                }
            }
        }
        for span in spans("must_keep") {
            keep += 1;
            let hit = redacted
                .spans
                .iter()
                .any(|found| overlaps(&found.from, &range(&span)));
            kept += u32::from(!hit);
        }
        for found in &redacted.spans {
            placed += 1;
            let is_right = spans("spans")
                .iter()
                .any(|span| overlaps(&found.from, &range(span)));
            right += u32::from(is_right);
            if verbose && !is_right {
                println!("extra {} in {}", found.kind, row["text"]);
            }
        }
    }
    for (kind, (found, all)) in kinds {
        println!("{language} {kind}: {found}/{all}");
    }
    println!("{language} placeholders on a labelled span: {right}/{placed}; kept: {kept}/{keep}");
}
