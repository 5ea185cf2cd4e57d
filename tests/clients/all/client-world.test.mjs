// @stentor/client under more random events than client-world.test.mjs has.
import { randomTests } from '../client-random.mjs';

randomTests(5_000);
