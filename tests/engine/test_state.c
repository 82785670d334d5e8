/* SPDX-License-Identifier: MIT */
/*
 * The reference engine goes on after a state was saved and loaded: no bit of a logit differs, and no token but the last
 * is computed again, wherever the state goes.
 */
#include "engine_state.h"

#include "unit.h"

#include <stdlib.h>

static void test_no_bit_differs(void **state)
{
    uint32_t n;
    const engine_state_case *cases = engine_state_cases(&n);

    (void)state;
    for (uint32_t i = 0; i < n; i++) {
        double max = 1.0;
        uint32_t n_reused = 0;
        int status = engine_state_run(&cases[i], "/tmp", &max, &n_reused);

        if (status != KVLAZY_OK || max != 0.0 || n_reused != ENGINE_STATE_TOKENS - 1)
            fail_msg("%s: %s, differs by %g, %u tokens were there", cases[i].name, kvlazy_status_name(status), max,
                     n_reused);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_bit_differs)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
