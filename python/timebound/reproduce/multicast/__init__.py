"""`timebound reproduce mrt-mqtt`: the experiment of the MRT-MQTT paper, section VII: four stacks, three loads, three paths."""
