/* SPDX-License-Identifier: MIT */
/* status and version: the pinned numbers, and that every one has a name and a text. */
#include "unit.h"

#include <kvlazy/kvlazy.h>

static void numbers_are_pinned(void **state)
{
    static const struct {
        int status, pinned;
        const char *name;
    } rows[] = {
        {KVLAZY_OK, 0, "KVLAZY_OK"},
        {KVLAZY_EINVAL, -1, "KVLAZY_EINVAL"},
        {KVLAZY_ENOSLOT, -2, "KVLAZY_ENOSLOT"},
        {KVLAZY_EBUDGET, -3, "KVLAZY_EBUDGET"},
        {KVLAZY_ENOMEM, -4, "KVLAZY_ENOMEM"},
        {KVLAZY_EPOS, -5, "KVLAZY_EPOS"},
        {KVLAZY_ESHIFT, -6, "KVLAZY_ESHIFT"},
        {KVLAZY_EBUSY, -7, "KVLAZY_EBUSY"},
        {KVLAZY_ESTATE, -8, "KVLAZY_ESTATE"},
        {KVLAZY_EIO, -9, "KVLAZY_EIO"},
        {KVLAZY_ENOTSUP, -10, "KVLAZY_ENOTSUP"},
    };

    (void)state;
    for (size_t i = 0; i < N_OF(rows); i++) {
        assert_int_equal(rows[i].status, rows[i].pinned);
        assert_string_equal(kvlazy_status_name(rows[i].status), rows[i].name);
        assert_true(*kvlazy_status_message(rows[i].status));
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(kvlazy_status_message(rows[i].status), kvlazy_status_message(rows[j].status));
    }
}

static void any_number_has_a_text(void **state)
{
    (void)state;
    assert_string_equal(kvlazy_status_name(1), "KVLAZY_?");
    assert_string_equal(kvlazy_status_name(-11), "KVLAZY_?");
    assert_string_equal(kvlazy_status_message(INT32_MIN), "not a kvlazy status");
}

static void library_and_header_agree(void **state)
{
    (void)state;
    assert_int_equal(kvlazy_version(), KVLAZY_VERSION);
    assert_string_equal(kvlazy_version_string(), KVLAZY_VERSION_STRING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_pinned),
        cmocka_unit_test(any_number_has_a_text),
        cmocka_unit_test(library_and_header_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
