//! What was changed, copied or damaged is refused, and says why.

use super::*;

#[tokio::test]
async fn a_keyring_of_another_log_is_told_apart_from_an_erasure() {
    let (codec, other) = (codec(), Codec::new(Arc::new(MemoryKeyring::new(8))));
    let (_, record, _) = told(&codec, "我对芒果过敏").await;
    let error = open_one(&other, &record).await.unwrap_err();
    assert_eq!(error.reason(), "key_unknown");
}

#[tokio::test]
async fn one_bad_record_does_not_spoil_its_batch() {
    let codec = codec();
    let (_, good, _) = told(&codec, "我对芒果过敏").await;
    let mut bad = good.clone();
    bad.payload = Bytes::from_static(b"no record");
    let opened = codec.open(&[bad, good]).await.unwrap();
    assert_eq!(opened[0].as_ref().unwrap_err().reason(), "undecodable");
    assert!(opened[1].is_ok());
}

/// Changes a sealed turn's envelope, and says why it is refused.
async fn check_turn(change: impl FnOnce(&mut Envelope), expected: &str) {
    let codec = codec();
    let (_, mut record, _) = told(&codec, "我对芒果过敏").await;
    let mut envelope = Envelope::decode(&record.payload).unwrap();
    change(&mut envelope);
    record.payload = envelope.encode().unwrap().into();
    let error = open_one(&codec, &record).await.unwrap_err();
    assert_eq!(error.reason(), expected);
    assert!(!error.is_retryable());
}

#[tokio::test]
async fn every_byte_of_headers_and_bodies_is_bound_to_the_seal() {
    check_turn(
        |envelope| *envelope.parts[0].body.last_mut().unwrap() ^= 1,
        "tampered",
    )
    .await;
    check_turn(|envelope| envelope.parts[0].body.clear(), "tampered").await;
    // The last byte of the turn's header says that nothing failed; the one before it, that there is no
    // origin; before that stands the consent version.
    let consent = |envelope: &mut Envelope| {
        let at = envelope.header.len() - 3;
        envelope.header[at] ^= 2;
    };
    check_turn(consent, "tampered").await;
    let nonce = |envelope: &mut Envelope| *envelope.parts[0].header.last_mut().unwrap() ^= 1;
    check_turn(nonce, "tampered").await;
    check_turn(|envelope| envelope.parts.clear(), "no_body").await;
    let twice = |envelope: &mut Envelope| envelope.parts.push(envelope.parts[0].clone());
    check_turn(twice, "mislabelled").await;
    let unsealed = |envelope: &mut Envelope| {
        let mut header = PartHeader::decode(&envelope.parts[0].header).unwrap();
        header.key_id = None;
        envelope.parts[0].header = header.encode().unwrap();
    };
    check_turn(unsealed, "mislabelled").await;
    check_turn(|envelope| envelope.header[4] ^= 1, "unknown_schema").await;
}

#[tokio::test]
async fn parts_cannot_change_places_and_nothing_sealed_turns_clear() {
    let codec = codec();
    let (_, record, _) = decided(&codec, "我对芒果过敏").await;
    let check = async |change: &dyn Fn(&mut Envelope), expected: &str| {
        let mut envelope = Envelope::decode(&record.payload).unwrap();
        change(&mut envelope);
        let mut record = record.clone();
        record.payload = envelope.encode().unwrap().into();
        assert_eq!(
            open_one(&codec, &record).await.unwrap_err().reason(),
            expected
        );
    };
    check(&|envelope| envelope.parts.swap(1, 3), "tampered").await;
    let dropped = |envelope: &mut Envelope| drop(envelope.parts.remove(0));
    check(&dropped, "tampered").await;
    let forged = |envelope: &mut Envelope| {
        let moved = Transition::Moved {
            id: MemoryId::from_bytes([1; 16]),
            standing: standing(),
        };
        let body = anamnesis_schemas::Body::of_transition(&moved).unwrap();
        let mut header = PartHeader::decode(&envelope.parts[2].header).unwrap();
        header.body_schema = body.schema;
        envelope.parts[2].header = header.encode().unwrap();
        envelope.parts[2].body = body.datum;
    };
    check(&forged, "unsealed").await;
}

/// another partitioner puts an owner's record where nobody who asks for that owner looks.
#[tokio::test]
async fn a_record_in_another_partition_than_its_owners_is_refused() {
    const PARTITIONS: u32 = 8;
    let codec = codec();
    let (_, record, _) = told(&codec, "我对芒果过敏").await;
    let codec = codec.over(PARTITIONS);
    let home = partition_of(record.key, PARTITIONS);
    for partition in 0..PARTITIONS {
        let mut record = record.clone();
        record.position.partition = partition;
        let opened = open_one(&codec, &record).await;
        let refused = opened.err().map(|error| error.reason());
        let expected = (partition != home).then_some("wrong_partition");
        assert_eq!(refused, expected, "{partition}");
    }
}

#[tokio::test]
async fn a_record_copied_elsewhere_is_refused() {
    let codec = codec();
    let (_, record, _) = told(&codec, "我对芒果过敏").await;
    let moved = Record {
        position: place(Topic::Commands, 4),
        ..record.clone()
    };
    assert_eq!(
        open_one(&codec, &moved).await.unwrap_err().reason(),
        "misplaced"
    );
    let foreign = Record {
        key: OwnerKey::from_bytes([1; 16]),
        ..record
    };
    assert_eq!(
        open_one(&codec, &foreign).await.unwrap_err().reason(),
        "wrong_owner"
    );
}

#[tokio::test]
async fn quarantined_turns_become_unreadable_when_their_keys_expire() {
    let codec = codec();
    let turn = turn(&codec, "我对芒果过敏");
    let sealed = codec
        .seal_turns(&[turn], 0, Some(at(72 * 60)))
        .await
        .unwrap();
    let record = logged(Topic::Quarantine, 1, &sealed[0]);
    assert!(matches!(
        open_one(&codec, &record).await,
        Ok(Opened::Turn { .. })
    ));
    codec.keys().destroy_expired(at(72 * 60)).await.unwrap();
    assert!(matches!(
        open_one(&codec, &record).await,
        Ok(Opened::Erased { .. })
    ));
}

#[tokio::test]
async fn no_bytes_make_the_reader_panic() {
    let codec = codec();
    let (_, record, _) = decided(&codec, "我对芒果过敏").await;
    let mut state = 1_u64;
    let mut draw = |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize % below
    };
    let mut records = Vec::new();
    for _ in 0..2_000 {
        let mut bytes = record.payload.to_vec();
        for _ in 0..=draw(3) {
            let at = draw(bytes.len());
            bytes[at] = draw(256) as u8;
        }
        if draw(4) == 0 {
            bytes.truncate(draw(bytes.len()));
        }
        if bytes == record.payload {
            continue;
        }
        drop(read_clear(&bytes));
        records.push(Record {
            payload: bytes.into(),
            ..record.clone()
        });
    }
    let untouched = opened_decided(&codec, &record).await.decided;
    for opened in codec.open(&records).await.unwrap() {
        // Only the clear part of an erasure is guarded by the chain's hash alone.
        if let Ok(Opened::Decided(opened)) = opened {
            assert_eq!(opened.decided.parts[0], untouched.parts[0]);
            assert_ne!(opened.hash, Hash::of(&record.payload));
        }
    }
}
