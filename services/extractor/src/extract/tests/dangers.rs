//! What would harm if it were read wrongly: half a day, the wrong person, the opposite.

use super::*;

#[test]
fn the_half_of_the_day_counts_with_minutes() {
    for (text, time) in [
        (
            "I have a dentist appointment tomorrow at 7:30 pm",
            "19T19:30",
        ),
        ("dentist appointment tomorrow 8:15 PM", "19T20:15"),
        ("My follow-up is tomorrow at 2:45 p.m.", "19T14:45"),
        ("follow-up appointment tomorrow 4:30pm", "19T16:30"),
        ("follow-up appointment tomorrow evening at 6:30", "19T18:30"),
        (
            "follow-up appointment tomorrow at 6:30 in the evening",
            "19T18:30",
        ),
        ("follow-up appointment tomorrow at 12:30 am", "19T00:30"),
        ("follow-up appointment tomorrow at 9:30 am", "19T09:30"),
        ("follow-up appointment tomorrow at 12:30 pm", "19T12:30"),
        ("My follow-up is tomorrow at 7.30 pm", "19T19:30"),
        ("My follow-up is tomorrow at 9 pm", "19T21:00"),
        ("复查：明天下午4:30", "19T16:30"),
        ("明天晚上7:30复查", "19T19:30"),
        ("明天上午9:30复查", "19T09:30"),
        ("明天 7:30 pm 复查", "19T19:30"),
    ] {
        let set = extract(&turn(Role::User, text), &Context::default());
        let found = facts(&set);
        assert!(
            found.len() == 1 && found[0].ends_with(&format!("2026-06-{time}+08:00")),
            "{text}: {found:?}"
        );
    }
}

#[test]
fn two_of_a_kind_are_two_persons() {
    check(
        "我大女儿对花生过敏，我小儿子对花生不过敏",
        &[
            "other(older daughter) allergy=peanut",
            "other(younger son) allergy=peanut not",
        ],
    );
    check(
        "My older brother has gout but my younger brother has asthma",
        &[
            "other(older brother) condition=gout",
            "other(younger brother) condition=asthma",
        ],
    );
}

#[test]
fn the_examination_belongs_to_the_answer() {
    check(
        "不可以做增强 CT。可以做增强 MRI",
        &[
            "contrast_ct=not_allowed",
            "contraindication=contrast mri not",
        ],
    );
    check(
        "I can't have a contrast CT. I can have a contrast MRI.",
        &[
            "contrast_ct=not_allowed",
            "contraindication=contrast mri not",
        ],
    );
    check(
        "I may not have contrast CT, contrast MRI is fine",
        &[
            "contrast_ct=not_allowed",
            "contraindication=contrast mri not",
        ],
    );
    check("我不能做核磁共振", &["contraindication=mri"]);
    check("I cannot have an MRI", &["contraindication=mri"]);
    check("我可以做核磁", &["contraindication=mri not"]);
}

#[test]
fn what_was_not_said_is_not_kept() {
    for text in [
        "隔壁床的人有肺结核",
        "The man in the next bed has tuberculosis",
        "My dog is allergic to chicken",
        "我家狗对鸡肉过敏",
        "My dog takes prednisone 5 mg",
        "My cat has diabetes. It takes insulin 2 units.",
        "我家猫有糖尿病",
        "邻居家的狗对鸡肉过敏",
        "My dog has diabetes. It takes insulin.",
        "我妈说：“我有糖尿病”",
        "除非我有糖尿病否则不用查",
        "Unless I have diabetes, no test is needed",
        "要不是我对青霉素过敏，就用了",
        "I wish I had no diabetes",
        "但愿我没有糖尿病",
        "I would take ibuprofen if I had pain",
        "I almost took aspirin",
        "我差点吃了阿司匹林",
        "我哪有高血压",
        "谁说我有高血压",
        "Who says I have hypertension",
        "I never said I was allergic to penicillin",
        "我没说过我有糖尿病",
        "They wrongly recorded that I am allergic to penicillin",
        "他们错误地记录我对青霉素过敏",
        "I used to think I was allergic to eggs",
        "我以前以为我对鸡蛋过敏",
        "Do not write that I am allergic to wheat",
        "不要写我对小麦过敏",
        "My friend said \"I am allergic to nuts\"",
        "我朋友说：“我对坚果过敏”",
        "医生考虑给我加用阿司匹林",
        "The doctor is considering adding aspirin",
        "My wife thinks I have dementia",
        "我老婆觉得我有痴呆",
        "? penicillin allergy",
        "？青霉素过敏",
    ] {
        check(text, &[]);
    }
}

#[test]
fn a_denial_denies_for_everybody_it_names() {
    check(
        "Neither I nor my wife has diabetes",
        &["condition=diabetes not", "spouse condition=diabetes not"],
    );
    check(
        "医生排除了我有冠心病",
        &["condition=coronary artery disease not"],
    );
    check(
        "I don't have diabetes nor asthma",
        &["condition=diabetes not", "condition=asthma not"],
    );
    check(
        "冠心病已经排除",
        &["condition=coronary artery disease not change"],
    );
    check(
        "Coronary artery disease was ruled out",
        &["condition=coronary artery disease not change"],
    );
    check(
        "排除了糖尿病和高血压",
        &["condition=diabetes not", "condition=hypertension not"],
    );
    check("不能排除肺结核", &[]);
    check(
        "FH: breast cancer (mother)",
        &["mother condition=breast cancer"],
    );
    check(
        "家族史：乳腺癌（母亲）",
        &["mother condition=breast cancer"],
    );
    check(
        "Family history: diabetes (maternal grandmother)",
        &["other(maternal grandmother) condition=diabetes"],
    );
}

#[test]
fn the_last_word_of_a_repair_counts() {
    check(
        "I take warfarin 5 mg, sorry, 3 mg.",
        &["medication=warfarin 3 mg"],
    );
    check("我吃华法林 5 mg，不对，3 mg", &["medication=warfarin 3 mg"]);
    check("我对青霉素过敏，不对，是头孢", &["allergy=cephalosporin"]);
    check(
        "I am allergic to penicillin, no wait, cephalosporin",
        &["allergy=cephalosporin"],
    );
    check(
        "I take metformin 500 mg, no, 1000 mg",
        &["medication=metformin 1000 mg"],
    );
    check(
        "我吃二甲双胍500 mg，哦不，1000 mg",
        &["medication=metformin 1000 mg"],
    );
    check(
        "I take lisinopril, sorry, losartan 50 mg",
        &["medication=losartan 50 mg"],
    );
    check(
        "I have asthma, no diabetes",
        &["condition=asthma", "condition=diabetes not"],
    );
    let set = extract(
        &turn(Role::User, "I take warfarin 5 mg, sorry, 3 mg."),
        &Context::default(),
    );
    // The words that are kept tell the same dose as the quantity.
    let claim = &set.candidates[0].claim;
    assert_eq!(claim.text.expose(), "I take warfarin 5 mg, sorry, 3 mg");
    check("I live in Leeds, I mean York", &["address=york"]);
    check("我住在北京，不对，是上海", &["address=上海"]);
    check(
        "我爸对青霉素过敏，不对，是我妈",
        &["mother allergy=penicillin"],
    );
}

#[test]
fn the_second_half_is_heard() {
    check(
        "I am not allergic to penicillin or aspirin, only to latex",
        &[
            "allergy=penicillin not",
            "allergy=aspirin not",
            "allergy=latex",
        ],
    );
    check(
        "I am allergic to penicillin but not to amoxicillin",
        &["allergy=penicillin", "allergy=amoxicillin not"],
    );
    check(
        "我对青霉素不过敏，只对乳胶",
        &["allergy=penicillin not", "allergy=latex"],
    );
    check(
        "I'm not allergic to anything except penicillin",
        &["allergy=penicillin"],
    );
    check(
        "I don't have any allergies except penicillin",
        &["allergy=penicillin"],
    );
    check("我除了青霉素都不过敏", &["allergy=penicillin"]);
    check(
        "My mother and I are allergic to nuts",
        &["mother allergy=tree nut", "allergy=tree nut"],
    );
}

#[test]
fn a_range_is_no_single_dose() {
    check("I take insulin 4-6 units", &["medication=insulin"]);
    check("我打胰岛素 4到6单位", &["medication=insulin"]);
    check(
        "I take warfarin 2.5 mg on Monday and 5 mg on Tuesday",
        &["medication=warfarin"],
    );
    check("体重 60-65 kg", &[]);
    check("I take warfarin .5 mg", &["medication=warfarin 0.5 mg"]);
}

#[test]
fn weekly_is_not_daily() {
    for text in [
        "我吃甲氨蝶呤 10 mg 每周一次",
        "我每周吃甲氨蝶呤 10 mg",
        "I take methotrexate 10 mg weekly",
        "I take methotrexate 10 mg, once weekly",
        "I take methotrexate 10 mg every Monday",
    ] {
        check(text, &["medication=methotrexate 10 mg once_weekly"]);
    }
    check(
        "I take methotrexate 10 mg every other day",
        &["medication=methotrexate 10 mg every_other_day"],
    );
    check(
        "我吃甲氨蝶呤 10 mg，隔天一次",
        &["medication=methotrexate 10 mg every_other_day"],
    );
}

#[test]
fn an_unlisted_name_is_the_value() {
    check(
        "I take drug Zyx1 10 mg daily",
        &["medication=zyx1 10 mg once_daily"],
    );
    check("我在吃药物Zyx1 10 mg", &["medication=zyx1 10 mg"]);
    check(
        "I take the tablet Korvex 10 mg",
        &["medication=korvex 10 mg"],
    );
}

#[test]
fn off_the_record_covers_the_whole_message() {
    for text in [
        "I have gout. Don't write that down.",
        "这个别记：我有抑郁症",
        "别告诉别人，也别存，我在吃帕罗西汀",
        "I have gout. Do not write it down",
        "我有痛风，这句别存",
        "I have gout. Please forget I said that",
    ] {
        let set = extract(&turn(Role::User, text), &Context::default());
        assert!(set.candidates.is_empty(), "{text}");
        assert_eq!(codes(&set), [RejectCode::Consent], "{text}");
    }
}

#[test]
fn a_cancelled_visit_ends() {
    check("复查取消了", &["appointment=follow-up not change"]);
    check("不去复查了", &["appointment=follow-up not change"]);
    check(
        "My follow-up is cancelled",
        &["appointment=follow-up not change"],
    );
    check(
        "My follow-up on Thursday is cancelled",
        &["appointment=follow-up not change 2026-06-25"],
    );
}

#[test]
fn what_happened_is_kept_in_both_languages() {
    check(
        "Blood was drawn last Friday.",
        &["examination=blood test 2026-06-12"],
    );
    check(
        "I was vaccinated yesterday",
        &["examination=vaccination 2026-06-17"],
    );
    check("我昨天打了疫苗", &["examination=vaccination 2026-06-17"]);
    check("I fell three days ago", &["event=fall 2026-06-15"]);
    check("我三天前摔倒了", &["event=fall 2026-06-15"]);
}
