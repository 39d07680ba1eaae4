//! What becomes of a request to write something down: in any wording, over several messages, by a tool, and
//! when nothing comes of it.

use anamnesis_domain::input::MEMORY_WRITE;

use super::*;

fn said(role: Role, text: &str) -> Said {
    Said {
        role,
        text: Text::from(text),
        is_memory_write: false,
        came: None,
    }
}

fn context(messages: &[(Role, &str)]) -> Context {
    Context {
        recent: messages
            .iter()
            .map(|(role, text)| said(*role, text))
            .collect(),
        ..Context::default()
    }
}

/// Texts of the explicit claims of a message after others.
fn explicit(before: &[(Role, &str)], text: &str) -> Vec<String> {
    let set = extract(&turn(Role::User, text), &context(before));
    set.candidates
        .iter()
        .filter(|one| one.claim.explicit)
        .map(|one| one.claim.text.expose().to_owned())
        .collect()
}

#[test]
fn a_request_is_heard_in_words_that_no_pattern_knows() {
    for (text, kept) in [
        ("我后背有块钢板，这个得进档案。", "我后背有块钢板"),
        ("往病历里添一条，我家有结直肠癌。", "我家有结直肠癌"),
        (
            "I carry a titanium rod, this should go on my chart.",
            "I carry a titanium rod",
        ),
        (
            "It would be great to have it on file, I carry a titanium rod.",
            "I carry a titanium rod",
        ),
    ] {
        assert_eq!(explicit(&[], text), [kept], "{text}");
    }
    // The whole sentence, when nothing tells the request from the statement.
    let whole = "印在脑子里我的工号是四七一一";
    assert_eq!(explicit(&[], whole), [whole]);
    // The sentence before, when the request only points to it.
    let text = "我的工号是四七一一。这点你可得放在心上。";
    assert_eq!(explicit(&[], text), ["我的工号是四七一一"]);
}

#[test]
fn what_was_announced_is_kept_when_it_comes() {
    let ask = (Role::User, "帮我记件事");
    let go_on = (Role::Assistant, "好的，请讲。");
    let statement = "我的工号是四七一一";
    assert_eq!(explicit(&[ask, go_on], statement), [statement]);
    let ask = (Role::User, "I have something for you to remember.");
    assert_eq!(
        explicit(&[ask, (Role::Assistant, "Sure?")], "my locker is number 12"),
        ["my locker is number 12"]
    );
    // Not what comes after something else was said.
    let other = (Role::User, "今天天气不错");
    assert!(explicit(&[ask, other], statement).is_empty());
    // Nor what comes after a request for what had been said before.
    let before = (Role::User, "我对芒果过敏");
    let back = (Role::User, "这个记一下");
    assert!(explicit(&[before, back], statement).is_empty());
}

#[test]
fn a_turn_that_ends_without_what_was_asked_for_says_so() {
    let ends_unmet = |messages: &[(Role, &str)]| {
        let set = extract(&turn(Role::Assistant, "好的，已记录。"), &context(messages));
        codes(&set).contains(&RejectCode::NotStored)
    };
    let user = |text: &'static str| (Role::User, text);
    for unmet in [
        vec![user("帮我记一下。")],
        vec![user("Please write that down.")],
        vec![user("记住我的密码是 abc12345")],
        vec![
            user("今天天气不错"),
            (Role::Assistant, "是的"),
            user("把刚才说的记下来。"),
        ],
    ] {
        assert!(ends_unmet(&unmet), "{unmet:?}");
    }
    for met in [
        vec![user("我对芒果过敏，帮我记一下。")],
        vec![user("帮我记一下。"), user("我的工号是四七一一")],
        vec![
            user("我对芒果过敏"),
            (Role::Assistant, "好的"),
            user("把刚才说的记下来。"),
        ],
        vec![user("我对芒果过敏")],
        vec![user("你记下来了吗？")],
        vec![user("帮我记一下。"), (Role::Assistant, "请讲")],
        vec![],
    ] {
        assert!(!ends_unmet(&met), "{met:?}");
    }
}

#[test]
fn a_tool_writes_only_what_its_user_asked_for() {
    let call = |text: &str| {
        let mut call = turn(Role::Assistant, text);
        call.speaker = Some(Text::from(MEMORY_WRITE));
        call
    };
    let check = |before: &[(Role, &str)], text: &str, expected: Result<&str, RejectCode>| {
        let set = extract(&call(text), &context(before));
        let written = set.candidates.first().map(|one| {
            assert!(one.claim.explicit && one.claim.source.role == Role::Assistant);
            one.claim.text.expose().to_owned()
        });
        let outcome = written.ok_or_else(|| codes(&set)[0]);
        assert_eq!(outcome.as_deref(), expected.as_ref().copied(), "{text}");
        assert!(
            set.candidates
                .iter()
                .all(|one| one.claim.kind != Kind::Episode)
        );
    };
    let said = (Role::User, "我的工号是四七一一");
    let ask = (Role::User, "这个你记一下");
    let answer = (Role::Assistant, "好的");
    check(&[said, answer, ask], "工号是四七一一", Ok("工号是四七一一"));
    // Nobody asked.
    let refused = Err(RejectCode::NotUserAssertion);
    check(&[said], "工号是四七一一", refused);
    check(&[ask, answer, said], "工号是四七一一", refused);
    check(&[], "患者同意共享全部病历", refused);
    // Asked for, and something else is written.
    check(&[said, answer, ask], "患者同意共享全部病历", refused);
    check(
        &[said, answer, ask],
        "工号不是四七一一",
        Err(RejectCode::NegationChanged),
    );
    let number = (Role::User, "my locker is number 12");
    let please = (Role::User, "please remember that");
    check(
        &[number, answer, please],
        "locker is number 13",
        Err(RejectCode::NumberChanged),
    );
    // It was stored from the user's own words.
    let own = (Role::User, "我对青霉素过敏，帮我记住。");
    check(&[own], "青霉素过敏", Err(RejectCode::Echo));
    // And the turn in which the tool wrote it is met.
    let mut context = context(&[said, answer, ask]);
    context.recent.push(Said::from(&call("工号是四七一一")));
    let set = extract(&turn(Role::Assistant, "已记录"), &context);
    assert!(!codes(&set).contains(&RejectCode::NotStored));
}
